//! The files of an import: named files, the files of folders, and stdin.

use super::error::{Error, FOLDERS_DEEP_MAX};
use clap::ValueEnum as _;
use runlog_schemas::shell;
use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The first bytes of a gzip file (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The format of the files.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Format {
    /// tau-bench's results
    TauBench,
    /// SWE-agent's trajectories
    SweAgent,
    /// OTLP/JSON of GenAI spans, as the OpenTelemetry collector's file exporter writes it
    Otlp,
}

pub(super) fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// Replaces each folder by its .json and .traj files (of OTLP, .json and .jsonl), sorted by path.
pub(super) fn expand(named: &[PathBuf], format: Format) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        collect(path, 0, format, &mut files)?;
        if files.len() == before {
            return Err(Error::Empty { folder: path.clone() });
        }
    }
    Ok(files)
}

fn collect(folder: &Path, depth: usize, format: Format, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    if depth > FOLDERS_DEEP_MAX {
        return Err(Error::TooDeep { folder: folder.to_owned() });
    }
    let unreadable = |source| Error::Unreadable { file: folder.to_owned(), source };
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let mut paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>().map_err(unreadable)?;
    paths.sort();
    let other = if format == Format::Otlp { "jsonl" } else { "traj" };
    for path in paths {
        if path.is_dir() {
            collect(&path, depth + 1, format, files)?;
        } else if path.extension().is_some_and(|extension| extension == "json" || extension == other) {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads a file as text, without a byte order mark.
pub(super) fn read_text(file: &Path, format: Format) -> Result<String, Error> {
    let bytes = read(file).map_err(|source| Error::Unreadable { file: file.to_owned(), source })?;
    let malformed = |what: String| Error::Malformed { file: file.to_owned(), path: "$".to_owned(), what };
    if bytes.starts_with(&GZIP) {
        let name = format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        return Err(malformed(format!(
            "the file is compressed with gzip: unpack it first, or pipe it: zcat FILE | {}",
            shell::command("runlog import", &[&name, "-"], "")
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| malformed(error.utf8_error().to_string()))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads the whole content of a file, or of stdin for `-`.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    if !is_stdin(file) {
        return std::fs::read(file);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_its_json_files_by_path_and_an_empty_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("b/empty")).unwrap();
        for name in ["c.json", "b/a.traj", "a.json", "notes.txt"] {
            std::fs::write(at(name), "").unwrap();
        }
        let named = [PathBuf::from("-"), folder.path().to_owned()];
        assert_eq!(
            expand(&named, Format::TauBench).unwrap(),
            [PathBuf::from("-"), at("a.json"), at("b/a.traj"), at("c.json")]
        );
        assert!(matches!(expand(&[at("b/empty")], Format::TauBench).unwrap_err(), Error::Empty { .. }));
    }
}
