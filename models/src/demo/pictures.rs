//! Pictures of coloured shapes, drawn by number.

use std::f32::consts::PI;

use image::RgbImage;

use super::random::Random;
use super::scene::{Group, Relation, Scene, Shape};

/// Width and height of a picture in pixels: 6 x 6 patches, 3 x 3 tokens.
pub const SIDE: usize = 96;

/// Tokens of a picture in a row and in a column.
pub const CELLS: usize = 3;

/// Samples per pixel and axis.
const SAMPLES: usize = 4;
/// How far a shape may reach from its centre, in its size.
const REACH: f32 = 1.12;
/// Centres lie on multiples of this: a small model need not learn each shape at every offset from its patches.
const GRID: f32 = 4.0;
/// Pixels between two shapes.
const GAP: f32 = 2.0;

/// Which pictures: those a model is trained on, or those it is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// For training.
    Training,
    /// For judging.
    HeldOut,
}

/// A picture and what it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// What it shows; the caption is its `Display` form.
    pub scene: Scene,
    /// `SIDE * SIDE` pixels of red, green and blue, row by row.
    pub pixels: Vec<u8>,
    /// What stands in each ninth of the picture, row by row: the object whose centre is there.
    pub cells: [Option<Group>; CELLS * CELLS],
}

impl Picture {
    /// Picture `number` of a split, always the same one.
    pub fn new(split: Split, number: u64) -> Self {
        // Two sequences that never meet: the split is the lowest bit.
        let stream = number << 1 | u64::from(split == Split::HeldOut);
        let mut random = Random::new(stream.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let scene = Scene::random(&mut random);
        let objects = arrange(&scene, &mut random);
        let mut cells = [None; CELLS * CELLS];
        for object in &objects {
            let cell = |at: f32| (at as usize * CELLS / SIDE).min(CELLS - 1);
            cells[cell(object.y) * CELLS + cell(object.x)] = Some(object.group);
        }
        Self {
            scene,
            pixels: draw(&objects, &mut random),
            cells,
        }
    }

    /// The pixels as an image.
    pub fn to_image(&self) -> RgbImage {
        let pixel = |x: u32, y: u32| {
            let at = 3 * (y as usize * SIDE + x as usize);
            image::Rgb([self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]])
        };
        RgbImage::from_fn(SIDE as u32, SIDE as u32, pixel)
    }

    /// The caption.
    pub fn caption(&self) -> String {
        self.scene.to_string()
    }
}

/// A shape at its place.
#[derive(Clone, Copy, Debug)]
struct Object {
    group: Group,
    x: f32,
    y: f32,
    size: f32,
}

/// Part of the picture: left, top, right, bottom.
type Area = [f32; 4];

/// Places for all objects; tries until they fit and the relation is clear.
fn arrange(scene: &Scene, random: &mut Random) -> Vec<Object> {
    loop {
        let placed = match scene.second {
            None => place(
                scene.first,
                [0.0, 0.0, SIDE as f32, SIDE as f32],
                [11.0, 16.0],
                random,
            ),
            Some((relation, second)) => place_pair(scene.first, relation, second, random),
        };
        if let Some(objects) = placed {
            return objects;
        }
    }
}

fn place_pair(
    first: Group,
    relation: Relation,
    second: Group,
    random: &mut Random,
) -> Option<Vec<Object>> {
    let side = SIDE as f32;
    let border = side / 2.0 + random.between(-8.0, 8.0);
    let (leading, trailing) = match relation {
        Relation::Above | Relation::Below => ([0.0, 0.0, side, border], [0.0, border, side, side]),
        _ => ([0.0, 0.0, border, side], [border, 0.0, side, side]),
    };
    let (of_first, of_second) = match relation {
        Relation::Above | Relation::LeftOf => (leading, trailing),
        _ => (trailing, leading),
    };
    let sizes = [10.0, 13.0];
    let mut objects = place(first, of_first, sizes, random)?;
    let others = place(second, of_second, sizes, random)?;
    let (a, b) = (centre(&objects), centre(&others));
    let (dx, dy) = ((a.0 - b.0).abs(), (a.1 - b.1).abs());
    let (along, across) = match relation {
        Relation::Above | Relation::Below => (dy, dx),
        _ => (dx, dy),
    };
    objects.extend(others);
    (along > 1.5 * across).then_some(objects)
}

fn centre(objects: &[Object]) -> (f32, f32) {
    let n = objects.len() as f32;
    let sum = |part: fn(&Object) -> f32| objects.iter().map(part).sum::<f32>() / n;
    (sum(|o| o.x), sum(|o| o.y))
}

fn place(group: Group, area: Area, sizes: [f32; 2], random: &mut Random) -> Option<Vec<Object>> {
    let mut placed: Vec<Object> = Vec::with_capacity(group.count);
    for _ in 0..400 {
        if placed.len() == group.count {
            break;
        }
        let size = random.between(sizes[0], sizes[1]);
        let margin = size * REACH + GAP / 2.0;
        let [left, top, right, bottom] = area;
        if right - left < 2.0 * margin || bottom - top < 2.0 * margin {
            continue;
        }
        let object = Object {
            group,
            x: on_grid(random.between(left, right)),
            y: on_grid(random.between(top, bottom)),
            size,
        };
        let fits = (left + margin..=right - margin).contains(&object.x)
            && (top + margin..=bottom - margin).contains(&object.y);
        let free = fits
            && placed.iter().all(|other| {
                let distance = (object.x - other.x).hypot(object.y - other.y);
                distance >= (object.size + other.size) * REACH + GAP
            });
        if free {
            placed.push(object);
        }
    }
    (placed.len() == group.count).then_some(placed)
}

fn on_grid(at: f32) -> f32 {
    (at / GRID).round() * GRID
}

/// The corners of a shape; none for a circle.
fn corners(object: &Object) -> Vec<(f32, f32)> {
    let ring = |n: usize, radius: fn(usize) -> f32, start: f32| {
        (0..n)
            .map(|i| {
                let angle = start + 2.0 * PI * i as f32 / n as f32;
                let radius = object.size * radius(i);
                (
                    object.x + radius * angle.cos(),
                    object.y + radius * angle.sin(),
                )
            })
            .collect()
    };
    match object.group.shape {
        Shape::Circle => Vec::new(),
        Shape::Square => ring(4, |_| 1.12, PI / 4.0),
        Shape::Triangle => ring(3, |_| REACH, -PI / 2.0),
        Shape::Star => ring(10, |i| if i % 2 == 0 { REACH } else { 0.5 }, -PI / 2.0),
    }
}

fn inside(object: &Object, corners: &[(f32, f32)], x: f32, y: f32) -> bool {
    if corners.is_empty() {
        return (x - object.x).hypot(y - object.y) <= object.size * 0.92;
    }
    // Even-odd rule: how many edges a ray to the right crosses.
    let edges = corners.iter().zip(corners.iter().cycle().skip(1));
    edges.fold(false, |odd, (a, b)| {
        let crosses = (a.1 > y) != (b.1 > y) && x < (b.0 - a.0) * (y - a.1) / (b.1 - a.1) + a.0;
        odd != crosses
    })
}

fn draw(objects: &[Object], random: &mut Random) -> Vec<u8> {
    let mut canvas = background(random);
    for object in objects {
        let colour = object
            .group
            .colour
            .rgb()
            .map(|c| c + random.between(-14.0, 14.0));
        let corners = corners(object);
        let reach = object.size * REACH + 1.0;
        let range = |centre: f32| {
            let low = (centre - reach).max(0.0) as usize;
            low..((centre + reach) as usize + 1).min(SIDE)
        };
        for row in range(object.y) {
            for column in range(object.x) {
                let covered = (0..SAMPLES * SAMPLES)
                    .filter(|i| {
                        let at =
                            |base: usize, i: usize| base as f32 + (i as f32 + 0.5) / SAMPLES as f32;
                        inside(
                            object,
                            &corners,
                            at(column, i % SAMPLES),
                            at(row, i / SAMPLES),
                        )
                    })
                    .count();
                let share = covered as f32 / (SAMPLES * SAMPLES) as f32;
                let pixel = &mut canvas[row * SIDE + column];
                for (value, colour) in pixel.iter_mut().zip(colour) {
                    *value += (colour - *value) * share;
                }
            }
        }
    }
    canvas
        .into_iter()
        .flatten()
        .map(|value| {
            (value + random.between(-3.0, 3.0))
                .round()
                .clamp(0.0, 255.0) as u8
        })
        .collect()
}

/// Light or dark, slightly tinted, brighter towards one side.
fn background(random: &mut Random) -> Vec<[f32; 3]> {
    let level = match random.below(2) {
        0 => random.between(20.0, 60.0),
        _ => random.between(200.0, 235.0),
    };
    let base: [f32; 3] = std::array::from_fn(|_| level + random.between(-10.0, 10.0));
    let slope = [random.between(-15.0, 15.0), random.between(-15.0, 15.0)];
    let at = |i: usize| i as f32 / SIDE as f32 - 0.5;
    (0..SIDE * SIDE)
        .map(|i| {
            let light = slope[0] * at(i % SIDE) + slope[1] * at(i / SIDE);
            base.map(|value| value + light)
        })
        .collect()
}
