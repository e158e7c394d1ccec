//! Row products of `Q5_K`.

use crate::blocks::Q5K;
use crate::cpu::types::CpuCode;

impl CpuCode for Q5K {}
