//! One row of the tensor table.

use super::error::{Fault, Problem};
use super::reader::Reader;
use super::types::GgmlType;

/// A tensor: its name, shape, type and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, for example `blk.0.attn_q.weight`. From the file: may hold any character.
    pub name: String,
    /// Sizes in ggml order, 1 to 4 of them, none zero: `dims[0]` is the length of a row, whose elements are contiguous.
    pub dims: Vec<u64>,
    /// Element type.
    pub ty: GgmlType,
    /// Bytes of the whole tensor.
    pub bytes: u64,
    pub(super) shard: u32,
    pub(super) offset: u64,
}

impl TensorInfo {
    /// Elements in the tensor.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Elements in a row.
    pub fn row_len(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Rows in the tensor.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.bytes / self.rows().max(1)
    }

    /// Shard that holds the data, from 0.
    pub fn shard(&self) -> usize {
        self.shard as usize
    }

    /// Offset of the data in its shard's file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Turns the table's offset, which counts from the data section, into one in the file.
    pub(super) fn place(
        &mut self,
        data_start: u64,
        section: u64,
        alignment: u64,
    ) -> Result<(), Problem> {
        let offset = self.offset;
        if !offset.is_multiple_of(alignment) {
            return Err(Problem::Misaligned { offset, alignment });
        }
        if offset
            .checked_add(self.bytes)
            .is_none_or(|end| end > section)
        {
            return Err(Problem::Outside {
                offset,
                bytes: self.bytes,
                section,
            });
        }
        self.offset = data_start + offset;
        Ok(())
    }
}

/// Reads what follows the name. The offset is still that of the table.
pub(super) fn read_tensor(r: &mut Reader<'_>, name: &str) -> Result<TensorInfo, Fault> {
    let start = r.offset();
    let fault = |problem| Fault {
        offset: start,
        problem,
    };
    let count = r.u32("the number of dimensions")?;
    if !(1..=4).contains(&count) {
        return Err(fault(Problem::Dimensions { count }));
    }
    let dims = (0..count)
        .map(|_| r.u64("the dimensions"))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(index) = dims.iter().position(|&d| d == 0) {
        return Err(fault(Problem::ZeroDimension { index }));
    }
    let type_at = r.offset();
    let id = r.u32("the tensor's type")?;
    let ty = GgmlType::from_id(id).ok_or(Fault {
        offset: type_at,
        problem: Problem::TensorType { id },
    })?;
    let offset = r.u64("the tensor's offset")?;

    let row = dims.first().copied().unwrap_or(1);
    if !row.is_multiple_of(ty.block_len() as u64) {
        return Err(fault(Problem::PartialBlock { row, ty }));
    }
    let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let Some(bytes) = elements.and_then(|n| ty.bytes_for(n)) else {
        return Err(fault(Problem::Overflow { dims }));
    };
    Ok(TensorInfo {
        name: name.to_owned(),
        dims,
        ty,
        bytes,
        shard: 0,
        offset,
    })
}
