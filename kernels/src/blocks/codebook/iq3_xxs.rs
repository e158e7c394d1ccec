//! The 256 points of `IQ3_XXS`: four magnitudes whose coordinates are a point of the lattice D4 (their sum is even).

use super::{Codebook, Cube, grid_of_four};

const CUBE: Cube = Cube {
    bits_per_coordinate: 3,
    even_sum: true,
};

/// Steps of 8 but for the last, which reaches further; signs are stored apart.
const LEVELS: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];

/// The codebook of `IQ3_XXS`.
pub(crate) static IQ3_XXS: Codebook<u32, 256> = {
    let points = CUBE.members(&MEMBERS);
    let grid = grid_of_four(&points, LEVELS);
    Codebook { points, grid }
};

/// 256 of the 2048 points.
const MEMBERS: [u64; 32] = [
    0x1041_3533_6002_13b7,
    0x1000_0439_4090_b317,
    0x0020_2009_6084_8020,
    0x0102_00d0_0400_4000,
    0x0000_0313_0018_7333,
    0x0808_1103_2000_1133,
    0x1008_0500_0010_0005,
    0x0001_0200_0000_0004,
    0x1a00_1137_0002_1b33,
    0x5000_0051_0041_8393,
    0x4001_0802_0020_4000,
    0x0004_0083_0000_0000,
    0x000c_1103_2410_0331,
    0x0000_2010_2020_0413,
    0x0040_0209_2008_1000,
    0x0100_2000_0200_8040,
    0x4000_0000_00a0_c084,
    0x0004_0008_0901_8100,
    0x1002_0400_0410_0004,
    0x0000_1034_0000_0000,
    0x0040_0809_1001_0020,
    0x0020_0002_2000_2040,
    0x0000_1002_2000_0a10,
    0x0002_0400_0010_0000,
    0x0100_0100_040c_0400,
    0x0000_9000_0400_0080,
    0x0020_0004_0004_0000,
    0x0000_0102_0000_2000,
    0x0001_0800_0020_201e,
    0x0100_2041_0024_0020,
    0x0000_0403_0001_0100,
    0x0000_0000_0000_1000,
];
