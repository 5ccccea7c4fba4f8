// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which copy of this library a program uses. ggml finds a package's copy by itself, and
//! `GGML_BACKEND_PATH` names any other. With both loaded, one NPU would have two devices of the
//! same name.

use std::env;
use std::ffi::{CStr, OsStr, c_void};
use std::fs::{self, Metadata};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether `GGML_BACKEND_PATH` names another copy, which ggml loads after this one.
pub(crate) fn another_is_named() -> bool {
    let named = env::var_os("GGML_BACKEND_PATH");
    named
        .zip(own_path())
        .is_some_and(|(named, own)| is_another(Path::new(&named), own))
}

/// Whether `named` has the name of a copy of this library, and is not the file `own`.
fn is_another(named: &Path, own: &Path) -> bool {
    let file = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let name = named.file_name().unwrap_or_default().as_bytes();
    let is_copy = name.starts_with(b"libggml") && name.windows(6).any(|part| part == b"rocket");
    match (fs::metadata(named), fs::metadata(own)) {
        (Ok(named), Ok(own)) => is_copy && file(named) != file(own),
        // ggml will not find it either.
        _ => false,
    }
}

/// The file that this code was loaded from.
fn own_path() -> Option<&'static Path> {
    let code: fn() -> bool = another_is_named;
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `dladdr` takes any address; the other one is that of a `Dl_info`.
    let known = unsafe { libc::dladdr(code as *const c_void, found.as_mut_ptr()) };
    if known == 0 {
        return None;
    }
    // SAFETY: filled in, as the function has not returned zero.
    let found = unsafe { found.assume_init() };
    if found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a NUL-terminated string of the dynamic loader, which keeps it as long
    // as it keeps the library: this code.
    let path = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(Path::new(OsStr::from_bytes(path.to_bytes())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn another_file_of_our_name_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        for name in ["libggml-rocket.so", "libggml_rocket.so", "libggml-cuda.so"] {
            fs::write(place(name), []).unwrap();
        }
        symlink("libggml-rocket.so", place("libggml-hexagon-rocket.so")).unwrap();
        let own = place("libggml-hexagon-rocket.so");
        assert!(is_another(&place("libggml_rocket.so"), &own));
        assert!(!is_another(&place("libggml-rocket.so"), &own));
        assert!(!is_another(&place("libggml-cuda.so"), &own));
        assert!(!is_another(&place("libggml-rocket-gone.so"), &own));
    }

    #[test]
    fn this_program_knows_its_file() {
        let own = fs::canonicalize(own_path().unwrap()).unwrap();
        assert_eq!(own, env::current_exe().unwrap());
    }
}
