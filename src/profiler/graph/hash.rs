//! Kernels known by a hash of their source, so that two runs can be compared.

use super::node::GraphError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// FNV-1a with 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv): the same number for the same bytes, everywhere and always.
pub const fn fnv1a_64(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// Source of kernels by hash.
#[derive(Debug, Clone, Default)]
pub struct KernelRegistry {
    kernels: BTreeMap<u64, KernelSource>,
}

/// A kernel's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSource {
    /// Name of the kernel.
    pub name: String,
    /// Text of its source.
    pub source: String,
    /// Where the source is kept.
    pub path: PathBuf,
}

impl KernelRegistry {
    /// Remembers a kernel and says its hash. The same source again changes nothing.
    ///
    /// # Errors
    ///
    /// [`GraphError::HashCollision`] where another source has the hash.
    pub fn register(&mut self, name: &str, source: &str, path: &Path) -> Result<u64, GraphError> {
        let hash = fnv1a_64(source.as_bytes());
        match self.kernels.get(&hash) {
            Some(old) if old.source != source => Err(GraphError::HashCollision {
                old: old.name.clone(),
                new: name.to_owned(),
            }),
            Some(_) => Ok(hash),
            None => {
                let kernel = KernelSource {
                    name: name.to_owned(),
                    source: source.to_owned(),
                    path: path.to_owned(),
                };
                self.kernels.insert(hash, kernel);
                Ok(hash)
            }
        }
    }

    /// The kernel with this hash.
    pub fn lookup(&self, hash: u64) -> Option<&KernelSource> {
        self.kernels.get(&hash)
    }

    /// Kernels in ascending order of hash.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &KernelSource)> {
        self.kernels.iter().map(|(hash, kernel)| (*hash, kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f112_source_hash_is_stable() {
        // Published test vectors of FNV-1a.
        const EMPTY: u64 = fnv1a_64(b"");
        assert_eq!(EMPTY, 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
        assert_ne!(fnv1a_64(b"kernel v1"), fnv1a_64(b"kernel v2"));
    }

    #[test]
    fn f112_registry_finds_source_by_hash() {
        let mut registry = KernelRegistry::default();
        let path = Path::new("src/a.rs");
        let hash = registry.register("dot", "fn dot() {}", path).unwrap();
        assert_eq!(registry.register("dot", "fn dot() {}", path), Ok(hash));
        let other = registry.register("dot", "fn dot() { }", path).unwrap();
        assert_ne!(hash, other);
        let found = registry.lookup(hash).unwrap();
        assert_eq!(
            (found.name.as_str(), found.source.as_str()),
            ("dot", "fn dot() {}")
        );
        assert_eq!(found.path, path);
        assert!(registry.lookup(1).is_none());
        assert_eq!(registry.iter().count(), 2);
    }
}
