//! The 1024 points of `IQ2_S`: of the lattice E8, as those of `IQ2_XXS`, and four times as many.

use super::{Codebook, Cube, grid_of_eight};

const CUBE: Cube = Cube {
    bits_per_coordinate: 2,
    even_sum: true,
};

/// About 8.5 times the odd numbers 1, 3, 5; signs are stored apart.
const LEVELS: [u8; 3] = [8, 25, 43];

/// The codebook of `IQ2_S`.
pub(crate) static IQ2_S: Codebook<u64, 1024> = {
    let points = CUBE.members(&MEMBERS);
    let grid = grid_of_eight(&points, LEVELS);
    Codebook { points, grid }
};

/// 1024 of the 3281 points.
const MEMBERS: [u64; 52] = [
    0xfbcd_ff53_7fbf_dfff,
    0xfc45_502f_c4de_6736,
    0xe6ff_6ffc_dbe7_fffb,
    0x5f78_04c2_6d02_f84d,
    0x0884_da2f_3811_4dff,
    0xbddf_e080_0043_4610,
    0xc06f_37fb_ffe6_d77f,
    0x6ff6_fbc0_2603_2996,
    0x3680_4c26_f37f_84de,
    0x184d_e2df_8004_0261,
    0x4024_2004_04c2_6f00,
    0x0512_39d7_de00_0020,
    0x12d0_4402_6133_89ce,
    0x6804_c26f_36fa_0300,
    0x0202_0130_0050_2613,
    0x0270_0800_4c06_5000,
    0x1820_0082_0040_0000,
    0xf3fb_cda6_7ffb_ffc0,
    0x800c_26d2_7984_de6f,
    0x4de6_ff09_bcdf_efff,
    0xf640_0804_c26f_009c,
    0x1009_84de_0120_9bcd,
    0x7fbc_0000_0080_4c08,
    0x04c2_6f37_f80d_e6ff,
    0xde6f_f000_6026_1368,
    0x6000_804c_26f0_0984,
    0x0898_4de0_0000_0502,
    0x4040_0000_0804_c001,
    0x4826_d37b_a008_0000,
    0x2012_0404_0261_3780,
    0x0008_04c2_6d10_0010,
    0x0000_0202_0404_4026,
    0x0410_0400_004c_0400,
    0x0002_0000_0000_0080,
    0x6fb0_1945_e65b_7880,
    0x0000_4c07_5809_80de,
    0x984d_e013_09bc_5fe0,
    0x4000_000c_04c0_1100,
    0x8010_0188_0001_3019,
    0xfb10_0830_0200_0000,
    0x0044_c065_0098_4de4,
    0x84de_8000_0040_2600,
    0x5000_0080_4c08_1009,
    0x0140_9800_0404_0004,
    0x0000_0050_000c_0000,
    0x004e_4550_0800_0000,
    0x8240_0020_0400_1200,
    0x1000_0804_d01a_0006,
    0x0000_0000_0000_4048,
    0x1000_0008_0800_0002,
    0x0016_1800_2008_0000,
    0x0000_0000_0001_0040,
];
