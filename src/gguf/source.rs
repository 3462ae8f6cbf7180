//! Where a file's bytes live: mapped, embedded in the program, or on the heap.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use memmap2::Advice;

use super::buffer::{Buffer, open_direct};
use super::error::GgufError;
use super::load::{LoadMethod, LoadOptions, LoadOutcome, MapAdvice};
use super::mapping::Mapping;

#[derive(Debug)]
pub(super) enum Source {
    /// A mapped file, and where it is.
    Map(Mapping, PathBuf),
    Copy(Buffer),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Source {
    pub fn map(path: &Path) -> Result<Self, GgufError> {
        let io = |source: std::io::Error| match source.kind() {
            ErrorKind::NotFound => GgufError::NotFound {
                path: path.to_owned(),
            },
            _ => GgufError::Io {
                path: path.to_owned(),
                source,
            },
        };
        // Asked before opening: opening a named pipe would wait for its writer.
        let kind = fs::metadata(path).map_err(io)?;
        if kind.is_dir() {
            return Err(GgufError::Directory {
                path: path.to_owned(),
            });
        }
        if !kind.is_file() {
            return Err(GgufError::NotRegular {
                path: path.to_owned(),
            });
        }
        if kind.len() == 0 {
            return Err(GgufError::Empty {
                file: path.display().to_string(),
            });
        }
        let file = File::open(path).map_err(io)?;
        let map = Mapping::whole(&file).map_err(io)?;
        Ok(Source::Map(map, path.to_owned()))
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Source::Map(map, _) => map.bytes(),
            Source::Copy(buffer) => buffer.bytes(),
            Source::Static(bytes) => bytes,
            Source::Owned(bytes) => bytes,
        }
    }

    /// Best effort: advice that the system refuses changes speed, not results.
    fn advise(&self, advice: Advice) -> bool {
        match self {
            Source::Map(map, _) => map.advise(advice),
            _ => true,
        }
    }

    /// Brings the bytes of a mapped file where `options` wants them. What cannot be had is replaced by what can, and
    /// `outcome` says so; bytes that are no file's stay where they are.
    ///
    /// # Errors
    /// The file can no longer be read, or has another length than when it was mapped.
    pub fn load(
        &mut self,
        options: LoadOptions,
        outcome: &mut LoadOutcome,
    ) -> Result<(), GgufError> {
        let Source::Map(map, path) = self else {
            return Ok(());
        };
        let (path, len) = (&*path, map.bytes().len());
        if options.method != LoadMethod::Mmap {
            if let Some(note) = too_large(path, len, available_memory()) {
                outcome.options.method = LoadMethod::Mmap;
                outcome.notes.push(note);
            } else {
                let direct = || match options.method {
                    LoadMethod::Direct => Some(open_direct(path)),
                    _ => None,
                };
                let (buffer, note) = copy(path, direct(), len, options.huge_pages)?;
                if let Some(note) = note {
                    outcome.options.method = LoadMethod::Read;
                    outcome.notes.push(note);
                }
                *self = Source::Copy(buffer);
                return Ok(());
            }
        }
        self.advise_all(options.advice);
        Ok(())
    }

    fn advise_all(&self, advice: MapAdvice) {
        match advice {
            MapAdvice::None => {}
            MapAdvice::WillNeed => {
                self.advise(Advice::WillNeed);
            }
            MapAdvice::Sequential => {
                self.advise(Advice::Sequential);
            }
            MapAdvice::Random => {
                self.advise(Advice::WillNeed);
                self.advise(Advice::Random);
            }
            MapAdvice::Populate => {
                #[cfg(target_os = "linux")]
                if self.advise(Advice::PopulateRead) {
                    return;
                }
                // Linux before 5.14, and other systems.
                self.advise(Advice::WillNeed);
            }
        }
    }
}

/// Reads a file of `len` bytes through `direct` if there is one and it can, else through the page cache, with a note.
fn copy(
    path: &Path,
    direct: Option<io::Result<File>>,
    len: usize,
    huge_pages: bool,
) -> Result<(Buffer, Option<String>), GgufError> {
    let mut note = None;
    if let Some(file) = direct {
        match file.and_then(|file| Buffer::read(&file, len, huge_pages)) {
            Ok(buffer) => return Ok((buffer, None)),
            Err(e) => {
                note = Some(format!(
                    "{}: direct I/O is not possible here ({e}): read through the page cache instead",
                    path.display()
                ));
            }
        }
    }
    File::open(path)
        .and_then(|file| Buffer::read(&file, len, huge_pages))
        .map(|buffer| (buffer, note))
        .map_err(|source| GgufError::Io {
            path: path.to_owned(),
            source,
        })
}

/// Why a copy of this length is not made; unknown memory is taken for enough.
fn too_large(path: &Path, len: usize, available: Option<u64>) -> Option<String> {
    let available = available.filter(|&a| a < len as u64)?;
    Some(format!(
        "{}: a copy of {len} bytes does not fit into the {available} bytes of memory available: mapped instead",
        path.display()
    ))
}

fn available_memory() -> Option<u64> {
    use procfs::Current;
    procfs::Meminfo::current().ok()?.mem_available
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(len: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + i / 256) as u8).collect();
        file.write_all(&bytes).expect("written");
        file
    }

    #[test]
    fn every_way_gives_the_same_bytes() {
        let file = file(3_000_001);
        let mapped = Source::map(file.path()).expect("mapped");
        for method in LoadMethod::ALL {
            for advice in MapAdvice::ALL {
                for huge_pages in [false, true] {
                    let options = LoadOptions {
                        method,
                        advice,
                        huge_pages,
                    };
                    let mut source = Source::map(file.path()).expect("mapped");
                    let mut outcome = LoadOutcome {
                        options,
                        notes: Vec::new(),
                    };
                    source.load(options, &mut outcome).expect("loaded");
                    assert!(source.bytes() == mapped.bytes(), "{options}");
                    assert_eq!(outcome.options == options, outcome.notes.is_empty());
                }
            }
        }
    }

    #[test]
    fn f157_a_file_system_without_direct_io_is_read_plainly() {
        let file = file(10_000);
        let refused = Err(io::Error::from_raw_os_error(22));
        let (buffer, note) = copy(file.path(), Some(refused), 10_000, false).expect("read");
        assert_eq!(buffer.bytes().len(), 10_000);
        assert!(
            note.is_some_and(|n| n.contains("direct I/O is not possible here (Invalid argument"))
        );
        let gone = copy(Path::new("/nowhere/file"), None, 1, false).expect_err("gone");
        assert!(gone.to_string().contains("/nowhere/file"), "{gone}");
    }

    #[test]
    fn a_copy_that_does_not_fit_is_not_made() {
        let path = Path::new("m.gguf");
        assert_eq!(too_large(path, 10, Some(10)), None);
        assert_eq!(too_large(path, 10, None), None);
        assert!(too_large(path, 11, Some(10)).is_some_and(|n| n.contains("mapped instead")));
    }

    /// Minor faults of this thread so far.
    #[cfg(target_os = "linux")]
    fn faults() -> Option<u64> {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
        stat.rsplit_once(')')?
            .1
            .split_ascii_whitespace()
            .nth(7)?
            .parse()
            .ok()
    }

    /// Faults of touching every page of a file loaded this way.
    #[cfg(target_os = "linux")]
    fn faults_of(path: &Path, options: LoadOptions) -> Option<u64> {
        let mut source = Source::map(path).expect("mapped");
        source
            .load(options, &mut LoadOutcome::default())
            .expect("loaded");
        let before = faults()?;
        let sum: u64 = source
            .bytes()
            .iter()
            .step_by(4096)
            .map(|&b| u64::from(b))
            .sum();
        std::hint::black_box(sum);
        Some(faults()? - before)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn f158_prefetch_halves_the_faults() {
        let file = file(16 << 20);
        let with = |method, advice| {
            faults_of(
                file.path(),
                LoadOptions {
                    method,
                    advice,
                    huge_pages: false,
                },
            )
        };
        let Some(plain) = with(LoadMethod::Mmap, MapAdvice::None) else {
            println!("skipped: /proc does not tell faults here");
            return;
        };
        // Where the page cache has large folios one fault brings in megabytes.
        if plain < 4 {
            println!("skipped: {plain} faults are too few to compare");
            return;
        }
        for (method, advice) in [
            (LoadMethod::Mmap, MapAdvice::Populate),
            (LoadMethod::Read, MapAdvice::None),
        ] {
            let faults = with(method, advice).expect("as before");
            assert!(
                faults * 2 < plain,
                "{method:?} {advice:?}: {faults} of {plain}"
            );
        }
    }
}
