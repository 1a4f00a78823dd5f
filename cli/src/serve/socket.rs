//! The socket of the daemon: its path, its permissions, and how a service manager passes it on.
//!
//! The file must never be open to more users than asked for, and a daemon must never take the path of a live one.

use crate::args::Serve;
use crate::output::{Failure, named};
use rustix::fs::{FlockOperation, flock};
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::process::umask;
use std::env;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// The first file that a service manager passes on: see sd_listen_fds(3).
const FIRST_PASSED: RawFd = 3;
/// How long another daemon may take to bind a socket with the same path.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket that listens.
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    /// The path, for people.
    pub(crate) name: String,
    /// The file to remove at the end; `None` if it belongs to a service manager.
    file: Option<SocketFile>,
}

struct SocketFile {
    path: PathBuf,
    /// The device and the number of the file, which tell it from one that has replaced it.
    identity: (u64, u64),
}

impl Socket {
    /// Returns the socket of the service manager, or else a new one.
    pub(crate) async fn open(wanted: &Serve) -> Result<Self, Failure> {
        if let Some(listener) = passed_on()? {
            let address = listener.local_addr().ok();
            let path = address.as_ref().and_then(|address| address.as_pathname());
            let name = path.map_or_else(|| "a socket".to_owned(), named);
            return Ok(Self { listener, name, file: None });
        }
        let path = wanted.socket.clone().map_or_else(default_path, Ok)?;
        let (listener, identity) = bind(&path, wanted).await?;
        let name = named(&path);
        Ok(Self { listener, name, file: Some(SocketFile { path, identity }) })
    }

    /// Removes the file, unless another one has replaced it. Call it while the socket listens, so that no other daemon takes
    /// the path in the meantime. Dropping the socket does that, too.
    pub(crate) fn remove_file(&mut self) {
        if let Some(SocketFile { path, identity }) = self.file.take()
            && identify(&path).is_ok_and(|found| found == identity)
        {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.remove_file();
    }
}

fn wrong(message: String) -> Failure {
    Failure::Usage(message)
}

/// Returns the default of `--socket`. For root, makes its directory.
fn default_path() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        let directory = Path::new("/run/quorlock");
        match fs::DirBuilder::new().mode(0o755).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Failure::own(&format!("cannot make {}", named(directory)), &error));
            }
            _ => return Ok(directory.join("quorlock.sock")),
        }
    }
    match env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => Ok(Path::new(&directory).join("quorlock.sock")),
        None => Err(wrong(
            "no path is given: use --socket PATH, because XDG_RUNTIME_DIR is not set".to_owned(),
        )),
    }
}

/// Binds a socket at the path, with the wanted mode and owner. Replaces the file of a daemon that is gone.
async fn bind(path: &Path, wanted: &Serve) -> Result<(UnixListener, (u64, u64)), Failure> {
    let owner = wanted.owner.as_deref().map(|name| number_of(name, "--owner", user)).transpose()?;
    let group =
        wanted.group.as_deref().map(|name| number_of(name, "--group", group)).transpose()?;
    let failed = |error| Failure::own(&format!("cannot listen on {}", named(path)), &error);
    // Two daemons that start at the same time would otherwise both replace the file of a third one.
    let _locked = LockFile::lock(path).map_err(failed)?;
    remove_stale(path).await?;
    // The file is open to nobody until its owner is set.
    let before = umask(rustix::fs::Mode::from_bits_retain(0o777));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(failed)?;
    match prepare_file(path, owner, group, wanted.file_mode) {
        Ok(identity) => Ok((listener, identity)),
        Err(error) => {
            let _ = fs::remove_file(path);
            Err(failed(error))
        }
    }
}

/// Sets the owner and then the mode of the socket's file, and returns its identity. If the directory belongs to another
/// user, that user may have replaced the socket by a symbolic link to a file that only root may change: changes nothing
/// but a socket.
#[cfg(target_os = "linux")]
fn prepare_file(
    path: &Path,
    owner: Option<u32>,
    group: Option<u32>,
    mode: u32,
) -> io::Result<(u64, u64)> {
    use rustix::fs::{Mode, OFlags};
    use std::fs::Permissions;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, chown};
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.file_type().is_socket() {
        return Err(replaced());
    }
    // The path of what was opened, wherever it is now.
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    chown(&opened, owner, group)?;
    fs::set_permissions(&opened, Permissions::from_mode(mode))?;
    Ok((found.dev(), found.ino()))
}

#[cfg(not(target_os = "linux"))]
fn prepare_file(
    path: &Path,
    owner: Option<u32>,
    group: Option<u32>,
    mode: u32,
) -> io::Result<(u64, u64)> {
    use rustix::fs::{AtFlags, CWD, Mode, chmodat};
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(replaced());
    }
    std::os::unix::fs::lchown(path, owner, group)?;
    let mode = Mode::from_bits_retain(mode as rustix::fs::RawMode);
    chmodat(CWD, path, mode, AtFlags::SYMLINK_NOFOLLOW)?;
    identify(path)
}

fn replaced() -> io::Error {
    io::Error::other("another process has replaced the socket")
}

/// A locked file next to the socket. Only its owner can open it, because any user who can open a file can lock it and keep
/// the daemon from starting.
struct LockFile {
    path: PathBuf,
    file: File,
}

impl LockFile {
    fn lock(socket: &Path) -> io::Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let began = Instant::now();
        loop {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            let file = options.open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let locked = Self { path: path.clone(), file };
                    if locked.is_in_place()? {
                        return Ok(locked);
                    }
                    // The previous owner has deleted the file: try again.
                }
                Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let path = named(&path);
                    return Err(io::Error::other(format!("another process has locked {path}")));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the path still names the file that is locked.
    fn is_in_place(&self) -> io::Result<bool> {
        let file = self.file.metadata()?;
        Ok(identify(&self.path).is_ok_and(|found| found == (file.dev(), file.ino())))
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.is_in_place().unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the socket file of a daemon that is gone.
async fn remove_stale(path: &Path) -> Result<(), Failure> {
    let name = named(path);
    let failed = |error| Failure::own(&format!("cannot listen on {name}"), &error);
    let is_closed_to_all = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(wrong(format!("{name} exists, and is not a socket")));
        }
        Ok(found) => found.mode() & 0o777 == 0,
    };
    // It does not wait for a daemon that is frozen, so that its queue is full.
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        // A daemon was killed before it opened its socket to anybody.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_closed_to_all => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(failed(error)),
        _ => Err(wrong(format!("another process listens on {name}"))),
    }
}

fn identify(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Returns the number of a user or a group, given as its name or as the number itself.
fn number_of(
    given: &str,
    flag: &str,
    look_up: fn(&CString) -> Option<u32>,
) -> Result<u32, Failure> {
    if let Ok(number) = given.parse() {
        return Ok(number);
    }
    let found = CString::new(given).ok().and_then(|name| look_up(&name));
    found.ok_or_else(|| wrong(format!("{flag}: there is no {}", named(given))))
}

#[expect(unsafe_code, reason = "getpwnam(3)")]
fn user(name: &CString) -> Option<u32> {
    // SAFETY: the result is read at once, and nothing else in this process asks for users meanwhile.
    unsafe { libc::getpwnam(name.as_ptr()).as_ref() }.map(|user| user.pw_uid)
}

#[expect(unsafe_code, reason = "getgrnam(3)")]
fn group(name: &CString) -> Option<u32> {
    // SAFETY: the result is read at once, and nothing else in this process asks for groups meanwhile.
    unsafe { libc::getgrnam(name.as_ptr()).as_ref() }.map(|group| group.gr_gid)
}

/// Returns the socket that the service manager has passed on, if it has.
#[expect(unsafe_code, reason = "a file by its number")]
fn passed_on() -> Result<Option<UnixListener>, Failure> {
    let variable = |name| env::var(name).ok();
    if variable("LISTEN_PID") != Some(std::process::id().to_string()) {
        return Ok(None);
    }
    match variable("LISTEN_FDS").as_deref() {
        None | Some("0") => return Ok(None),
        Some("1") => {}
        Some(_) => return Err(wrong("LISTEN_FDS: exactly one socket can be passed on".to_owned())),
    }
    // SAFETY: the service manager has opened the file for this process, and nothing else uses it.
    let listener = unsafe { UnixListener::from_raw_fd(FIRST_PASSED) };
    if let Err(error) = listener.local_addr() {
        return Err(wrong(format!("LISTEN_FDS: not a Unix socket: {error}")));
    }
    match prepare(&listener) {
        Ok(true) => Ok(Some(listener)),
        Ok(false) => Err(wrong(
            "LISTEN_FDS: not a stream socket that listens, as ListenStream= makes it".to_owned(),
        )),
        Err(error) => Err(Failure::own("LISTEN_FDS", &error)),
    }
}

/// Closes the socket on exec. Returns whether clients can connect to it.
fn prepare(listener: &UnixListener) -> io::Result<bool> {
    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket_type(listener)? == SocketType::STREAM && socket_acceptconn(listener)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_socket_gets_the_owner_and_the_mode() {
        let directory = env::temp_dir().join(format!("quorlock-socket-{}", std::process::id()));
        fs::create_dir(&directory).expect("a new directory");
        let (file, socket) = (directory.join("file"), directory.join("socket"));
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)
            .expect("a new file");
        let mode = |path| fs::metadata(path).expect("it exists").mode() & 0o777;

        symlink(&file, &socket).expect("a new link");
        assert!(prepare_file(&socket, None, None, 0o666).is_err());
        assert!(prepare_file(&file, None, None, 0o666).is_err());
        assert_eq!(mode(&file), 0o600);

        fs::remove_file(&socket).expect("the link");
        let _listener = UnixListener::bind(&socket).expect("a new socket");
        let identity = prepare_file(&socket, None, None, 0o660).expect("a socket");
        assert_eq!((mode(&socket), identity), (0o660, identify(&socket).expect("it exists")));
        fs::remove_dir_all(&directory).expect("all of it");
    }
}
