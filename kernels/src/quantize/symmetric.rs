pub(crate) const NOTHING: f32 = 1e-15;
