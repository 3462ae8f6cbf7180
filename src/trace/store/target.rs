//! The file that a writer writes: under another name until it is finished, or in place, and never with another writer.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::{Problem, StoreError};
use super::head::open_file;

/// A locked file. Locks die with the process.
#[derive(Debug)]
pub(in crate::trace) struct Target {
    file: File,
    /// As the caller named it: errors do too.
    path: PathBuf,
    /// Where a new file is until it is finished, and where it goes then.
    new: Option<New>,
}

#[derive(Debug)]
struct New {
    temp: PathBuf,
    target: PathBuf,
    /// What is to be replaced, locked against writers that append to it.
    replaces: Option<File>,
}

impl Target {
    /// A new, empty file beside `path`, which becomes `path` when it is finished; until then what is there stays.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        let (target, replaces) = match fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => (path.to_owned(), None),
            Err(e) => return Err(StoreError::io(path, "looking at what is there")(e)),
            Ok(_) => {
                let file = locked(path, path, || open_file(path, false))?;
                // A link stays a link: what it leads to is replaced.
                let target = fs::canonicalize(path);
                let target = target.map_err(StoreError::io(path, "following a link"))?;
                (target, Some(file))
            }
        };
        let Some(name) = target.file_name() else {
            return Err(StoreError::new(path, Problem::NotRegular));
        };
        // One name for all writers, so that two of them meet at its lock, and a killed one's leftover is used again.
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".part");
        let temp = target.with_file_name(hidden);
        let creating = || StoreError::write(path, "creating the new file beside it");
        let file = locked(path, &temp, || {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&temp)
                .map_err(creating())?;
            match file.metadata().map_err(creating())?.is_file() {
                true => Ok(file),
                false => Err(StoreError::new(&temp, Problem::NotRegular)),
            }
        })?;
        let new = New {
            temp,
            target,
            replaces,
        };
        let this = Self {
            file,
            path: path.to_owned(),
            new: Some(new),
        };
        this.set_len(0)?;
        Ok(this)
    }

    /// An existing file, to be changed in place.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = locked(path, path, || open_file(path, true))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            new: None,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether readers see what is written before it is finished.
    pub fn in_place(&self) -> bool {
        self.new.is_none()
    }

    pub fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        let writing = StoreError::write(&self.path, "writing");
        self.step().map_err(&writing)?;
        self.file.write_all_at(bytes, at).map_err(writing)
    }

    pub fn set_len(&self, len: u64) -> Result<(), StoreError> {
        let sizing = StoreError::write(&self.path, "changing its length");
        self.step().map_err(&sizing)?;
        self.file.set_len(len).map_err(sizing)
    }

    /// What was written is on the disk after this.
    pub fn sync(&self) -> Result<(), StoreError> {
        let syncing = StoreError::write(&self.path, "writing to the disk");
        self.step().map_err(&syncing)?;
        self.file.sync_data().map_err(syncing)
    }

    /// Makes all that was written durable; a new file takes its name.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.sync()?;
        let Some(new) = &self.new else {
            return Ok(());
        };
        let naming = || StoreError::write(&self.path, "giving the new file its name");
        if let Some(old) = &new.replaces {
            let permissions = old.metadata().map_err(naming())?.permissions();
            self.file.set_permissions(permissions).map_err(naming())?;
        }
        self.step().map_err(naming())?;
        fs::rename(&new.temp, &new.target).map_err(naming())?;
        let folder = match new.target.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        self.new = None;
        // The name is in force already; that it survives a power failure is all that can fail here.
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(StoreError::write(
                &self.path,
                "writing its folder to the disk",
            ))
    }

    #[cfg(not(test))]
    fn step(&self) -> io::Result<()> {
        Ok(())
    }

    /// Lets a test look at the file, or fail, before each step.
    #[cfg(test)]
    fn step(&self) -> io::Result<()> {
        let now = self.new.as_ref().map_or(&self.path, |new| &new.temp);
        steps::before(now)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(new) = &self.new {
            // A leftover would only be used again by the next writer.
            let _ = fs::remove_file(&new.temp);
        }
    }
}

fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::new(path, Problem::Locked)),
        // Some network file systems have no locks; saving there must still be possible.
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(e)) => Err(StoreError::io(path, "locking")(e)),
    }
}

/// Opens and locks the file that is called `name` then: a writer may have finished, and so have given or taken the name,
/// between the two.
fn locked(
    path: &Path,
    name: &Path,
    open: impl Fn() -> Result<File, StoreError>,
) -> Result<File, StoreError> {
    for _ in 0..16 {
        let file = open()?;
        lock(&file, path)?;
        if same(&file, name) {
            return Ok(file);
        }
    }
    Err(StoreError::new(path, Problem::Locked))
}

/// Whether the open file is still the one of this name.
fn same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// What tests do before each step that changes a file.
#[cfg(test)]
pub(super) mod steps {
    use std::cell::RefCell;
    use std::io;
    use std::path::Path;

    type Watch = Box<dyn FnMut(&Path) -> io::Result<()>>;

    thread_local! {
        static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
    }

    pub fn before(path: &Path) -> io::Result<()> {
        WATCH.with_borrow_mut(|watch| watch.as_mut().map_or(Ok(()), |watch| watch(path)))
    }

    /// Runs `work` with `watch` called before each of its steps on this thread.
    pub fn watched<T>(
        watch: impl FnMut(&Path) -> io::Result<()> + 'static,
        work: impl FnOnce() -> T,
    ) -> T {
        WATCH.set(Some(Box::new(watch)));
        let done = work();
        WATCH.set(None);
        done
    }
}
