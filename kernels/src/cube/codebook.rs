//! The grids of the codebook types on a device, uploaded once.

use std::sync::Mutex;

use cubecl::{client::Client, prelude::BufferArg, server::Handle};

use crate::{GgmlType, blocks::codebook::grid_words};

/// A buffer that the kernels of a type look its codes up in.
#[derive(Clone, Debug)]
pub(crate) struct Codebook {
    pub handle: Handle,
    /// `u32` words of the buffer.
    pub words: usize,
}

/// One per device and type, kept for good: they are small, and every operation binds one.
static UPLOADED: Mutex<Vec<(Option<GgmlType>, Codebook)>> = Mutex::new(Vec::new());

impl Codebook {
    /// The codebook of `ty` on the device of `client`; one unused word for a type without.
    pub(crate) fn of(client: &Client, ty: GgmlType) -> Self {
        let words = grid_words(ty);
        let key = words.is_some().then_some(ty);
        let mut uploaded = UPLOADED.lock().unwrap_or_else(|e| e.into_inner());
        let service = client.service_id();
        let known = uploaded
            .iter()
            .find(|(ty, codebook)| *ty == key && codebook.handle.service == service);
        if let Some((_, codebook)) = known {
            return codebook.clone();
        }
        let words = words.unwrap_or(&[0]);
        let codebook = Self {
            handle: client.create_from_slice(bytemuck::cast_slice(words)),
            words: words.len(),
        };
        uploaded.push((key, codebook.clone()));
        codebook
    }

    /// The buffer as an argument of a kernel.
    pub(crate) fn arg(&self) -> BufferArg {
        // SAFETY: the length is that of the buffer.
        unsafe { BufferArg::from_raw_parts(self.handle.clone(), self.words) }
    }
}
