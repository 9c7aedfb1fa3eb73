//! Creates the topic of a new journal, and decides which process writes the genesis of an empty topic.
//!
//! ```text
//!   no topic ─▶ note ─▶ CreateTopics ─▶ note with the log's id ─▶ genesis ─▶ note removed
//! ```
//!
//! A process writes a genesis only into a topic that it created, or that the operator declares to be for a new journal. Another
//! empty topic may be the target of MirrorMaker: a genesis of its own would make the mirror another journal. The note in the data
//! folder names the topic that a process is creating, so that the next process completes the creation after a crash.

use crate::index::{
    Config, Error,
    config::Genesis,
    failpoint::{CREATION_NOTED, CREATION_TOPIC_MADE, CREATION_TOPIC_NOTED},
    stored_journal::stored_journal,
};
use runlog_log::{
    Kind, Log, LogId,
    kafka::{
        KafkaConfig, KafkaLog,
        admin::{self, TopicInfo},
    },
};
use runlog_schemas::answer::ErrorKind;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

/// The name of the note in the data folder.
const NOTE: &str = "new-topic.json";

/// A topic that a process with this data folder creates for a new journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    topic: String,
    /// The id of the cluster. `None` if its brokers did not report it.
    cluster: Option<String>,
    partitions: u32,
    /// The id of the topic's log. `None` until the topic is created, and on brokers without topic ids.
    log: Option<LogId>,
}

/// The topic of a journal.
#[derive(Debug)]
pub(super) enum Topic {
    /// It existed, or another process was faster.
    Existing(TopicInfo),
    /// This process created it.
    Created(Created),
}

/// A topic that this process created.
#[derive(Debug)]
pub(super) struct Created(Note);

/// Finds the topic, or creates it with the settings that a journal needs. Blocking.
///
/// Errors: `Invalid` for a missing topic if the data folder has an index, or if `config.may_create` is not set.
pub(super) fn find_or_create(config: &Config, kafka: &KafkaConfig) -> Result<Topic, Error> {
    if let Some(info) = admin::describe(kafka)? {
        return Ok(Topic::Existing(info));
    }
    let indexed = stored_journal(&config.index())?;
    if indexed.is_some() || !config.may_create {
        // The metadata of one broker may be out of date.
        if let Some(info) = admin::describe_existing(kafka)? {
            return Ok(Topic::Existing(info));
        }
        let missing = format!("topic {} does not exist at {}", kafka.topic, kafka.brokers);
        let message = match indexed {
            None => format!("{missing}; check --brokers and --topic"),
            Some(journal) => format!(
                "{missing}, but {} has the index of journal {}; check --brokers and --topic. For a new journal choose another \
                 folder with --data",
                config.index().path().display(),
                journal.journal_id
            ),
        };
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    create(config, kafka)
}

fn create(config: &Config, kafka: &KafkaConfig) -> Result<Topic, Error> {
    let partitions = config.partitions.unwrap_or(super::KAFKA_PARTITIONS);
    let (topic, cluster) = (kafka.topic.clone(), admin::cluster_id(kafka)?);
    let note = Note { topic, cluster, partitions, log: None };
    note.write(&config.dir)?;
    config.failpoints.reach(CREATION_NOTED);
    tracing::info!(topic = kafka.topic, partitions, "creating the topic");
    match admin::create_topic(kafka, partitions) {
        Ok(true) => {
            config.failpoints.reach(CREATION_TOPIC_MADE);
            Ok(Topic::Created(Created(note)))
        }
        Ok(false) => {
            // Another server has just created the topic, or an earlier request of this process did.
            let gone = || {
                let message = format!("topic {} disappeared during the start; start again", kafka.topic);
                Error::new(ErrorKind::Unavailable, message)
            };
            Ok(Topic::Existing(admin::describe_existing(kafka)?.ok_or_else(gone)?))
        }
        Err(error) => {
            // The cluster refused, so this process created no topic. After other errors the topic may exist.
            if matches!(error.kind(), Kind::Invalid | Kind::Fatal) {
                remove_note(&config.dir);
            }
            Err(error.into())
        }
    }
}

impl Topic {
    /// Returns who writes the genesis if `log`, which is on this topic, is empty. Blocking.
    pub(super) fn genesis(&self, log: &KafkaLog, config: &Config, kafka: &KafkaConfig) -> Result<Genesis, Error> {
        let writes = match self {
            Self::Created(Created(note)) => {
                Note { log: log.id().cloned(), ..note.clone() }.write(&config.dir)?;
                config.failpoints.reach(CREATION_TOPIC_NOTED);
                true
            }
            Self::Existing(_) if config.new_journal => true,
            Self::Existing(info) => match Note::read(&config.dir)? {
                Some(note) => note.names(log.id(), info, kafka)?,
                None => false,
            },
        };
        Ok(if writes { Genesis::Write } else { Genesis::Await })
    }
}

impl Note {
    /// Whether a process with this data folder created the topic.
    fn names(&self, log: Option<&LogId>, info: &TopicInfo, kafka: &KafkaConfig) -> Result<bool, Error> {
        if self.topic != kafka.topic {
            return Ok(false);
        }
        match &self.log {
            Some(noted) => Ok(Some(noted) == log),
            // The process ended before it knew the topic's id. MirrorMaker creates topics with another type of timestamps.
            None => Ok(self.cluster.is_some()
                && admin::is_as_created(info, self.partitions)
                && self.cluster == admin::cluster_id(kafka)?),
        }
    }

    /// Reads the note. A note that does not decode counts as no note: each write replaces the whole file.
    fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let file = dir.join(NOTE);
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let message = format!("cannot read the note about a new topic {}", file.display());
                return Err(Error::new(ErrorKind::Unavailable, message).because(error));
            }
        };
        Ok(serde_json::from_slice(&bytes)
            .inspect_err(
                |error| tracing::warn!(file = %file.display(), %error, "the note about a new topic is ignored"),
            )
            .ok())
    }

    /// Writes the note. It is on disk when this returns.
    fn write(&self, dir: &Path) -> Result<(), Error> {
        let (file, new) = (dir.join(NOTE), dir.join(format!("{NOTE}.new")));
        let write = || -> io::Result<()> {
            fs::create_dir_all(dir)?;
            let mut out = private(&new)?;
            out.write_all(&serde_json::to_vec(self)?)?;
            out.sync_all()?;
            fs::rename(&new, &file)?;
            // Makes the new name durable.
            File::open(dir)?.sync_all()
        };
        write().map_err(|error| {
            let message = format!("cannot write the note about a new topic {}", file.display());
            Error::new(ErrorKind::Unavailable, message).because(error)
        })
    }
}

/// Removes the note, because the journal has its genesis, or because the topic was not created.
pub(super) fn remove_note(dir: &Path) {
    let file = dir.join(NOTE);
    match fs::remove_file(&file).and_then(|()| File::open(dir)?.sync_all()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "cannot remove the note about a new topic");
        }
        _ => {}
    }
}

/// Creates a file that only this user may read, or empties it.
fn private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_note_is_private_and_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        assert_eq!(Note::read(&data).unwrap(), None);
        remove_note(&data);
        let note = Note { topic: "t".into(), cluster: Some("c".into()), partitions: 4, log: None };
        let made = Note { log: LogId::kafka("c", "XvNFJqY8S9-aPtxsJ_VgvA"), ..note.clone() };
        for note in [note, made] {
            note.write(&data).unwrap();
            assert_eq!(Note::read(&data).unwrap(), Some(note));
        }
        #[cfg(unix)]
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(data.join(NOTE)).unwrap().permissions()) & 0o777,
            0o600
        );
        fs::write(data.join(NOTE), "{").unwrap();
        assert_eq!(Note::read(&data).unwrap(), None);
        remove_note(&data);
        assert!(!data.join(NOTE).exists());
    }
}
