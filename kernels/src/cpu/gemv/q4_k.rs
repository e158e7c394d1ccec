//! Row products of `Q4_K`.

use crate::blocks::Q4K;
use crate::cpu::types::CpuCode;

impl CpuCode for Q4K {}
