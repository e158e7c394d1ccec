//! Row products of `Q8_0`.

use crate::blocks::Q8_0;
use crate::cpu::types::CpuCode;

impl CpuCode for Q8_0 {}
