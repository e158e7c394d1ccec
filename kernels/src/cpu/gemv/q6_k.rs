//! Row products of `Q6_K`.

use crate::blocks::Q6K;
use crate::cpu::types::CpuCode;

impl CpuCode for Q6K {}
