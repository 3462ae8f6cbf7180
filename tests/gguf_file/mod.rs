//! Builds GGUF files, right and wrong ones, for tests.
#![allow(dead_code)]

use cbtop::gguf::{Array, GgmlType, Value};

/// A tensor as it will be written, whatever nonsense it says.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: Vec<u8>,
    pub dims: Vec<u64>,
    pub ty: u32,
    pub data: Vec<u8>,
    /// Written instead of the true offset.
    pub offset: Option<u64>,
}

impl Tensor {
    /// A tensor of `ty` with the right number of bytes, which count up.
    pub fn new(name: &str, ty: GgmlType, dims: &[u64]) -> Self {
        let bytes = ty.bytes_for(dims.iter().product()).expect("whole blocks");
        let data = (0..bytes).map(|i| (i % 251) as u8).collect();
        Self {
            name: name.into(),
            dims: dims.to_vec(),
            ty: ty as u32,
            data,
            offset: None,
        }
    }
}

/// A file under construction.
#[derive(Debug, Clone)]
pub struct File {
    pub version: u32,
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    pub tensors: Vec<Tensor>,
    pub n_entries: Option<u64>,
    pub n_tensors: Option<u64>,
    pub alignment: u64,
}

impl Default for File {
    fn default() -> Self {
        Self {
            version: 3,
            entries: vec![],
            tensors: vec![],
            n_entries: None,
            n_tensors: None,
            alignment: 32,
        }
    }
}

impl File {
    /// A small file with a value of every type and a few tensors.
    pub fn sample() -> Self {
        Self::default()
            .with("general.architecture", Value::String("llama".into()))
            .with("general.alignment", Value::U32(32))
            .with("a.u8", Value::U8(1))
            .with("a.i8", Value::I8(-1))
            .with("a.u16", Value::U16(2))
            .with("a.i16", Value::I16(-2))
            .with("a.i32", Value::I32(-3))
            .with("a.u64", Value::U64(1 << 40))
            .with("a.i64", Value::I64(-4))
            .with("a.f32", Value::F32(0.5))
            .with("a.f64", Value::F64(0.25))
            .with("a.bool", Value::Bool(true))
            .with("a.list", Value::Array(Array::I32(vec![1, 2, 3])))
            .with("a.flags", Value::Array(Array::Bool(vec![true, false])))
            .with(
                "a.nested",
                Value::Array(Array::Nested(vec![
                    Array::U8(vec![7]),
                    Array::F32(vec![1.5]),
                ])),
            )
            .with("tokenizer.ggml.tokens", strings(&["<s>", "▁a", "b"]))
            .tensor(Tensor::new("token_embd.weight", GgmlType::Q8_0, &[32, 3]))
            .tensor(Tensor::new("norm.weight", GgmlType::F32, &[5]))
            .tensor(Tensor::new("cube", GgmlType::F16, &[2, 3, 4]))
    }

    /// Adds a key.
    pub fn with(self, key: &str, value: Value) -> Self {
        self.raw(key.as_bytes(), encode(&value))
    }

    /// Adds a key with any bytes for a name and for the type number and value.
    pub fn raw(mut self, key: &[u8], value: Vec<u8>) -> Self {
        self.entries.push((key.to_vec(), value));
        self
    }

    /// Adds a tensor.
    pub fn tensor(mut self, tensor: Tensor) -> Self {
        self.tensors.push(tensor);
        self
    }

    /// The file's bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(
            self.n_tensors
                .unwrap_or(self.tensors.len() as u64)
                .to_le_bytes(),
        );
        out.extend(
            self.n_entries
                .unwrap_or(self.entries.len() as u64)
                .to_le_bytes(),
        );
        for (key, value) in &self.entries {
            put_string(&mut out, key);
            out.extend(value);
        }
        let mut data = Vec::new();
        for t in &self.tensors {
            put_string(&mut out, &t.name);
            out.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(t.ty.to_le_bytes());
            pad(&mut data, self.alignment);
            out.extend(t.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend(&t.data);
        }
        if !self.tensors.is_empty() {
            pad(&mut out, self.alignment);
            out.extend(data);
        }
        out
    }
}

/// An array of strings.
pub fn strings(list: &[&str]) -> Value {
    Value::Array(Array::String(list.iter().collect()))
}

/// A type number and a count, as arrays start.
pub fn array_head(ty: u32, count: u64) -> Vec<u8> {
    [&ty.to_le_bytes()[..], &count.to_le_bytes()].concat()
}

fn pad(out: &mut Vec<u8>, alignment: u64) {
    out.resize((out.len() as u64).next_multiple_of(alignment) as usize, 0);
}

fn put_string(out: &mut Vec<u8>, s: &[u8]) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s);
}

/// Type number and value, as a file has them.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    macro_rules! number {
        ($id:literal, $v:expr) => {{
            out.extend(u32::to_le_bytes($id));
            out.extend($v.to_le_bytes());
        }};
    }
    match value {
        Value::U8(v) => number!(0, v),
        Value::I8(v) => number!(1, v),
        Value::U16(v) => number!(2, v),
        Value::I16(v) => number!(3, v),
        Value::U32(v) => number!(4, v),
        Value::I32(v) => number!(5, v),
        Value::F32(v) => number!(6, v),
        Value::U64(v) => number!(10, v),
        Value::I64(v) => number!(11, v),
        Value::F64(v) => number!(12, v),
        Value::Bool(v) => number!(7, u8::from(*v)),
        Value::String(s) => {
            out.extend(8u32.to_le_bytes());
            put_string(&mut out, s.as_bytes());
        }
        Value::Bytes(s) => {
            out.extend(8u32.to_le_bytes());
            put_string(&mut out, s);
        }
        Value::Array(a) => {
            out.extend(9u32.to_le_bytes());
            out.extend(encode_array(a));
        }
    }
    out
}

fn encode_array(array: &Array) -> Vec<u8> {
    macro_rules! numbers {
        ($id:literal, $v:expr) => {{
            let mut out = array_head($id, $v.len() as u64);
            $v.iter().for_each(|x| out.extend(x.to_le_bytes()));
            out
        }};
    }
    match array {
        Array::U8(v) => numbers!(0, v),
        Array::I8(v) => numbers!(1, v),
        Array::U16(v) => numbers!(2, v),
        Array::I16(v) => numbers!(3, v),
        Array::U32(v) => numbers!(4, v),
        Array::I32(v) => numbers!(5, v),
        Array::F32(v) => numbers!(6, v),
        Array::U64(v) => numbers!(10, v),
        Array::I64(v) => numbers!(11, v),
        Array::F64(v) => numbers!(12, v),
        Array::Bool(v) => {
            let mut out = array_head(7, v.len() as u64);
            out.extend(v.iter().map(|&b| u8::from(b)));
            out
        }
        Array::String(v) => {
            let mut out = array_head(8, v.len() as u64);
            v.iter().for_each(|s| put_string(&mut out, s.as_bytes()));
            out
        }
        Array::Bytes(v) => {
            let mut out = array_head(8, v.len() as u64);
            v.iter().for_each(|s| put_string(&mut out, s));
            out
        }
        Array::Nested(v) => {
            let mut out = array_head(9, v.len() as u64);
            v.iter().for_each(|a| out.extend(encode_array(a)));
            out
        }
    }
}
