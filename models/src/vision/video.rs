//! Videos as frames with times.

use std::path::PathBuf;

use super::image::{DecodeOptions, Image, ImageError, ImageInput, frame_folder};

/// Frames a second that a model is shown of an animation, as the original video processors sample.
const SAMPLE_FPS: f64 = 2.0;
/// Fewest frames taken of an animation that has as many.
const FEWEST: usize = 4;
/// Most frames of a video.
const MOST: usize = 768;

/// A video that is not decoded yet.
#[derive(Debug, Clone, PartialEq)]
pub enum VideoInput {
    /// A GIF, APNG or animated WebP with times of its own, of which two frames a second are taken.
    Animation(ImageInput),
    /// Frames, already chosen, that stand `1 / fps` seconds apart.
    Frames {
        /// The frames in order.
        frames: Vec<ImageInput>,
        /// Frames a second.
        fps: f64,
    },
}

/// A frame and when it is shown.
#[derive(Debug, Clone)]
pub struct TimedFrame {
    /// From the start of the video.
    pub seconds: f64,
    /// The frame.
    pub image: Image,
}

impl VideoInput {
    /// A folder of frames, in the order of their names and `1 / fps` seconds apart, or an animation.
    ///
    /// # Errors
    /// A folder that cannot be read or has no images.
    pub fn open(path: impl Into<PathBuf>, fps: f64) -> Result<Self, ImageError> {
        let path = path.into();
        Ok(match path.is_dir() {
            true => Self::Frames {
                frames: frame_folder(&path)?,
                fps,
            },
            false => Self::Animation(ImageInput::Path(path)),
        })
    }

    /// Decodes the frames the model is shown.
    ///
    /// # Errors
    /// Frames that cannot be decoded, none, or too many.
    pub fn decode(&self, options: &DecodeOptions) -> Result<Vec<TimedFrame>, ImageError> {
        match self {
            Self::Animation(input) => {
                let frames = input.decode_frames(options)?;
                let mut seconds = Vec::with_capacity(frames.len());
                let mut time = 0.0;
                for frame in &frames {
                    seconds.push(time);
                    time += frame.duration.as_secs_f64();
                }
                let chosen = sample(frames.len(), time);
                let timed = |i: usize| TimedFrame {
                    seconds: seconds[i],
                    image: frames[i].image.clone(),
                };
                Ok(chosen.into_iter().map(timed).collect())
            }
            Self::Frames { frames, fps } => {
                if frames.len() > MOST {
                    return Err(ImageError::TooManyFrames {
                        origin: frames[0].origin(),
                        limit: MOST,
                    });
                }
                let mut memory = 0u64;
                let mut timed = Vec::with_capacity(frames.len());
                for (i, frame) in frames.iter().enumerate() {
                    let image = frame.decode(options)?;
                    memory += u64::from(image.width()) * u64::from(image.height()) * 3;
                    if memory > options.max_memory {
                        return Err(ImageError::TooMuchMemory {
                            origin: frame.origin(),
                            needed: Some(memory),
                            limit: options.max_memory,
                        });
                    }
                    timed.push(TimedFrame {
                        seconds: i as f64 / fps,
                        image,
                    });
                }
                Ok(timed)
            }
        }
    }
}

/// Evenly spaced frames of `count` that last `seconds`, first and last included.
fn sample(count: usize, seconds: f64) -> Vec<usize> {
    let wanted = (seconds * SAMPLE_FPS) as usize;
    let wanted = wanted.clamp(FEWEST.min(count), MOST.min(count));
    match wanted {
        0 | 1 => (0..wanted).collect(),
        _ => (0..wanted)
            .map(|i| (i as f64 * (count - 1) as f64 / (wanted - 1) as f64).round() as usize)
            .collect(),
    }
}

/// What stands before the frames of a temporal patch: the mean of its first and last time.
pub(super) fn timestamp(frames: &[TimedFrame]) -> String {
    let times = frames.first().zip(frames.last());
    let seconds = times.map_or(0.0, |(a, b)| (a.seconds + b.seconds) / 2.0);
    format!("<{seconds:.1} seconds>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_frames_a_second_are_taken() {
        assert_eq!(sample(100, 10.0).len(), 20);
        assert_eq!(sample(100, 10.0)[19], 99);
        assert_eq!(sample(10, 0.5), [0, 3, 6, 9]);
        assert_eq!(sample(3, 60.0), [0, 1, 2]);
        assert_eq!(sample(1, 0.0), [0]);
        assert_eq!(sample(5000, 1e9).len(), MOST);
    }
}
