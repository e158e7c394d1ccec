//! Row products of `Q4_0`.

use crate::blocks::Q4_0;
use crate::cpu::types::CpuCode;

impl CpuCode for Q4_0 {}
