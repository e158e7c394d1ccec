//! A matrix of GGML blocks on a device, cut by rows where one binding cannot hold it.

use cubecl::{bytes::Bytes, client::Client, server::Handle};

use super::{CubeError, codebook::Codebook, part::PartLayout};
use crate::GgmlType;

/// Kernels count bytes in 32 bits with some room to add to.
const INDEX_LIMIT: u64 = 1 << 31;

/// Bytes that one binding of this device may hold, as far as the kernels here can address them.
pub fn binding_limit(client: &Client) -> u64 {
    client.properties().memory.max_page_size.min(INDEX_LIMIT)
}

/// Consecutive rows of a [`CubeMatrix`] that one binding holds.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The words, from an offset the device can bind.
    pub handle: Handle,
    /// Bytes between the start of `handle` and the first row.
    pub shift: usize,
    /// The row of the matrix that is the first one here.
    pub first_row: usize,
    /// Rows here, at least one.
    pub rows: usize,
    /// `u32` words of the binding.
    pub words: usize,
}

/// A matrix `[rows, cols]` of GGML blocks on a device: the bytes of a GGUF tensor as `u32` words, row after row.
#[derive(Clone, Debug)]
pub struct CubeMatrix {
    ty: GgmlType,
    rows: usize,
    cols: usize,
    row_bytes: usize,
    codebook: Codebook,
    pieces: Vec<Piece>,
}

impl CubeMatrix {
    /// A matrix over one buffer that holds all rows, cut at `limit` bytes per binding (see [`binding_limit`]).
    ///
    /// The pieces are windows into the same buffer: nothing is copied. A window starts at an offset the device can
    /// bind, at or before its first row, because rows may start at any even byte.
    ///
    /// # Errors
    /// If `ty` has no device code, `cols` does not fill whole blocks, the buffer is too small, or one row is over the limit.
    pub fn from_handle(
        client: &Client,
        handle: Handle,
        ty: GgmlType,
        rows: usize,
        cols: usize,
        limit: u64,
    ) -> Result<Self, CubeError> {
        Self::from_handles(client, vec![(handle, rows)], ty, rows, cols, limit)
    }

    /// As [`CubeMatrix::from_handle`], over several buffers of whole rows: each with the number of its rows.
    ///
    /// # Errors
    /// As [`CubeMatrix::from_handle`], and if the buffers do not hold `rows` rows together.
    pub fn from_handles(
        client: &Client,
        handles: Vec<(Handle, usize)>,
        ty: GgmlType,
        rows: usize,
        cols: usize,
        limit: u64,
    ) -> Result<Self, CubeError> {
        let mut matrix = Self::without_pieces(client, ty, rows, cols)?;
        let limit = limit.min(INDEX_LIMIT);
        let alignment = client.properties().memory.alignment.max(4) as usize;
        let mut first_row = 0;
        for (handle, rows) in handles {
            matrix.cut(handle, first_row, rows, alignment, limit)?;
            first_row += rows;
        }
        if first_row != rows {
            return Err(CubeError::BadPieces {
                expected: rows,
                got: first_row,
            });
        }
        Ok(matrix)
    }

    /// Copies a matrix to the device, each piece of at most `limit` bytes into an allocation of its own.
    ///
    /// # Errors
    /// As [`CubeMatrix::from_handle`]; `bytes` must be exactly the rows.
    pub fn upload(
        client: &Client,
        bytes: &[u8],
        ty: GgmlType,
        rows: usize,
        cols: usize,
        limit: u64,
    ) -> Result<Self, CubeError> {
        let mut matrix = Self::without_pieces(client, ty, rows, cols)?;
        let expected = (rows as u64).saturating_mul(matrix.row_bytes as u64);
        if expected != bytes.len() as u64 {
            return Err(CubeError::BadLength {
                what: "matrix",
                expected,
                got: bytes.len() as u64,
            });
        }
        if expected == 0 {
            return Ok(matrix);
        }
        // A piece is padded to whole words, which must not take it over the limit.
        let limit = limit.min(INDEX_LIMIT) / 4 * 4;
        let per_piece = matrix.rows_within(limit)?;
        for (i, piece) in bytes.chunks(per_piece * matrix.row_bytes).enumerate() {
            let words = piece.len().div_ceil(4);
            let mut data = Vec::with_capacity(words * 4);
            data.extend_from_slice(piece);
            data.resize(words * 4, 0);
            matrix.pieces.push(Piece {
                handle: client.create(Bytes::from_bytes_vec(data)),
                shift: 0,
                first_row: i * per_piece,
                rows: piece.len() / matrix.row_bytes,
                words,
            });
        }
        Ok(matrix)
    }

    /// The block type.
    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes in a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// The pieces, in the order of their rows; none when the matrix holds no values.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// What the type's codes are looked up in.
    pub(crate) fn codebook(&self) -> &Codebook {
        &self.codebook
    }

    fn without_pieces(
        client: &Client,
        ty: GgmlType,
        rows: usize,
        cols: usize,
    ) -> Result<Self, CubeError> {
        PartLayout::of(ty)?;
        let row_bytes = ty
            .row_bytes(cols)
            .ok_or(CubeError::BadRowLength { ty, cols })?;
        Ok(Self {
            ty,
            rows,
            cols,
            row_bytes,
            codebook: Codebook::of(client, ty),
            pieces: Vec::new(),
        })
    }

    fn rows_within(&self, bytes: u64) -> Result<usize, CubeError> {
        match (bytes / self.row_bytes as u64) as usize {
            0 => Err(CubeError::RowOverLimit {
                row_bytes: self.row_bytes as u64,
                limit: bytes,
            }),
            rows => Ok(rows),
        }
    }

    fn cut(
        &mut self,
        handle: Handle,
        first_row: usize,
        rows: usize,
        alignment: usize,
        limit: u64,
    ) -> Result<(), CubeError> {
        let (size, row_bytes) = (handle.size_in_used(), self.row_bytes);
        let expected = (rows as u64).saturating_mul(row_bytes as u64);
        if size < expected {
            return Err(CubeError::BadLength {
                what: "matrix",
                expected,
                got: size,
            });
        }
        if expected == 0 {
            return Ok(());
        }
        let per_piece = if expected <= limit {
            rows
        } else {
            self.rows_within(limit.saturating_sub(alignment as u64 + 3))?
        };
        for row in (0..rows).step_by(per_piece) {
            let rows = per_piece.min(rows - row);
            let start = row * row_bytes / alignment * alignment;
            let words = (row * row_bytes - start + rows * row_bytes).div_ceil(4);
            let end = (start + words * 4) as u64;
            self.pieces.push(Piece {
                handle: handle
                    .clone()
                    .offset_start(start as u64)
                    .offset_end(size.saturating_sub(end)),
                shift: row * row_bytes - start,
                first_row: first_row + row,
                rows,
                words,
            });
        }
        Ok(())
    }
}

/// Checks that an operand of `values` 4-byte values lies in `handle` and within what one binding may hold.
pub(crate) fn check_operand(
    client: &Client,
    what: &'static str,
    handle: Option<&Handle>,
    values: Option<usize>,
) -> Result<usize, CubeError> {
    let bytes = values.map_or(u64::MAX, |values| (values as u64).saturating_mul(4));
    let limit = binding_limit(client);
    if bytes > limit {
        return Err(CubeError::OverLimit { what, bytes, limit });
    }
    if let Some(got) = handle.map(Handle::size_in_used)
        && got < bytes
    {
        return Err(CubeError::BadLength {
            what,
            expected: bytes,
            got,
        });
    }
    Ok((bytes / 4) as usize)
}
