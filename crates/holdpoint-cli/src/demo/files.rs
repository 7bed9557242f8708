//! The demo's files: a folder as folders are.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::fail::{Fail, Result};

/// What is in the folder: the name and the bytes. Names with blanks, a duplicate, several ways to write dates and
/// amounts, Windows line ends, Latin-1, nothing at all, and a name that reads as another one on a screen.
pub(crate) const FILES: [(&str, &[u8]); 11] = [
    (
        "expenses.csv",
        b"Date;What;Amount EUR\r\n2026-11-03;Train to Bern;48,20\r\n03.11.2026;Hotel;129.00\r\n\
          2026-11-04;\"Lunch; two people\";37,50\r\n2026/11/05;Taxi;22.00\r\n;;\r\n2026-11-05;Refund train;-12,20\r\n",
    ),
    (
        "notes FINAL v2.md",
        b"# Bern trip\n\n* keep the signed contract!!\n* expenses -> Maria until Friday\n* old photos: archive/ (only copy)\n",
    ),
    ("contract_signed.txt", b"Contract 4711, signed 2026-11-04. The original is with us.\n"),
    ("Invoice 2026-11.txt", b"Invoice 2026-11\nHotel Bern, 1 night, 129.00 EUR\n"),
    ("Invoice 2026-11 (1).txt", b"Invoice 2026-11\nHotel Bern, 1 night, 129.00 EUR\n"),
    ("todo.txt.bak", b"- call Maria\n- book train\n"),
    ("~tmp4711.tmp", b"\0\x01\x02scratch"),
    ("offer_\u{202e}fdp.exe", b"not a PDF, whatever its name looks like\n"),
    ("Grüße.txt", b"Gr\xfc\xdfe aus Bern\n"),
    ("archive/photos 2019/list.txt", b"IMG_0001.jpg\nIMG_0002.jpg\nIMG_0003.jpg\n"),
    ("archive/untitled", b""),
];

/// The folders of a demo: the files, and apart from them what the server keeps.
#[derive(Debug)]
pub(crate) struct Folders {
    /// Where the agent works.
    pub(crate) files: PathBuf,
    /// Where the database is: never where the agent works.
    pub(crate) state: PathBuf,
}

impl Folders {
    /// Takes away what the server kept, once it has ended. The files stay.
    pub(crate) fn forget_state(&self) {
        let _ = std::fs::remove_dir_all(&self.state);
        // Where the files are somewhere else, nothing is left in it.
        let _ = self.state.parent().map(std::fs::remove_dir);
    }
}

/// Makes the files, in a new temporary folder or in the one that was named.
pub(crate) fn make(dir: Option<&Path>) -> Result<Folders> {
    let own = std::env::temp_dir().join(format!("holdpoint-demo-{}", uuid::Uuid::new_v4().simple()));
    let files = match dir {
        None => own.join("files"),
        Some(dir) => std::path::absolute(dir)
            .map_err(|error| Fail::usage(format!("`{}` cannot be used: {error}", dir.display())))?,
    };
    make_folder(&files)?;
    let cannot = |error: std::io::Error| Fail::new(format!("`{}` cannot be used: {error}", files.display()));
    if std::fs::read_dir(&files).map_err(cannot)?.next().is_some() {
        return Err(Fail::usage(format!("`{}` is not empty", files.display()))
            .hint("name a folder that is empty or does not exist: the demo's agent wants to delete things"));
    }
    let state = own.join("state");
    make_folder(&state)?;
    for (name, bytes) in FILES {
        let path = files.join(name);
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        std::fs::write(&path, bytes).map_err(cannot)?;
    }
    Ok(Folders { files: files.canonicalize().map_err(cannot)?, state })
}

fn make_folder(path: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| Fail::new(format!("the folder `{}` cannot be made: {error}", path.display())))
}

/// Every file of the folder by its name, sorted.
pub(crate) fn listing(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if let Ok(name) = path.strip_prefix(folder) {
                names.push(name.to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    names
}
