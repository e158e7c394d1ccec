//! Row products of `Q5_0`.

use crate::blocks::Q5_0;
use crate::cpu::types::CpuCode;

impl CpuCode for Q5_0 {}
