//! The list of the instances that serve one journal, and the partitions that each of them holds.
//!
//! ```text
//!   file (equal on all instances) ─▶ Instances ─▶ placement ─▶ the partitions to hold
//!                                                         └──▶ the URLs of the copies, for a partition that is not held
//! ```
//!
//! The list decides where a partition is, and never which partition a run has: that follows from the journal's genesis alone.

use crate::{
    placement::{Member, holders},
    tls,
};
use reqwest::Url;
use runlog_projector::index::held::{Choose, Found};
use runlog_schemas::{
    answer::with_causes,
    datum::{Sha256, hex},
    id::PartitionId,
};
use rustls::ClientConfig;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
};

mod forward;

pub(super) use forward::{Forward, forward};

/// Instances of a list.
const INSTANCES_MAX: usize = 64;
/// Bytes of a name and of a zone. A name is a part of headers and of signed texts.
const NAME_BYTES_MAX: usize = 253;
/// The version of the placement, for the digest of a list.
const PLACEMENT: &str = "place 1";

/// A list that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

/// An instance: a server of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name, which no other instance has.
    pub name: String,
    /// Its URL without a path, as other instances and clients reach it.
    pub url: String,
    /// Its zone; empty if the list has no zones.
    pub zone: String,
}

/// The instances that serve one journal, and the name of this server among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instances {
    copies: usize,
    all: Vec<Instance>,
    own: usize,
    /// The file of the authorities that the instances' certificates are of; `None`: the system's.
    ca: Option<PathBuf>,
}

/// The content of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    copies: Option<usize>,
    ca: Option<PathBuf>,
    instances: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    url: String,
    #[serde(default)]
    zone: String,
}

impl Instances {
    /// Parses the JSON of a list. `own` is the name of this server, and `copies` overrides the member of the file. Without both, each
    /// instance holds all partitions.
    ///
    /// Errors: for a list that is not valid, and for a name that is not in the list.
    pub fn parse(text: &str, own: &str, copies: Option<usize>) -> Result<Self, Invalid> {
        let file: File = serde_json::from_str(text).map_err(|error| Invalid(error.to_string()))?;
        if file.instances.len() > INSTANCES_MAX {
            return Err(Invalid(format!("it has {} instances, more than {INSTANCES_MAX}", file.instances.len())));
        }
        let all = file.instances.into_iter().map(Entry::checked).collect::<Result<Vec<_>, _>>()?;
        check_distinct(&all)?;
        if all.is_empty() {
            return Err(Invalid("it has no instances".to_owned()));
        }
        let count = all.len();
        let copies = copies.or(file.copies).unwrap_or(count);
        if copies == 0 {
            return Err(Invalid("copies is 0: each partition needs at least one copy".to_owned()));
        }
        let Some(own) = all.iter().position(|instance| instance.name == own) else {
            let names: Vec<&str> = all.iter().map(|instance| instance.name.as_str()).collect();
            return Err(Invalid(format!("it has no instance named {own:?}, only {}", names.join(", "))));
        };
        Ok(Self { copies: copies.min(count), all, own, ca: file.ca })
    }

    /// This server.
    pub fn own(&self) -> &Instance {
        &self.all[self.own]
    }

    /// The copies of each partition, at most the number of instances.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Whether each instance holds all partitions.
    pub fn hold_all(&self) -> bool {
        self.copies == self.all.len()
    }

    /// The other instances, with their numbers in the list.
    pub fn peers(&self) -> impl Iterator<Item = (usize, &Instance)> {
        self.all.iter().enumerate().filter(|(number, _)| *number != self.own)
    }

    /// An instance on another machine whose connections are not encrypted.
    pub fn unencrypted_peer(&self) -> Option<&Instance> {
        self.peers().map(|(_, peer)| peer).find(|peer| peer.url.starts_with("http://") && !is_loopback(&peer.url))
    }

    /// The TLS settings of requests to other instances. Blocking.
    ///
    /// Errors: if the file of the authorities cannot be read, or the list has https:// and there are no authorities.
    pub fn tls(&self) -> Result<ClientConfig, Invalid> {
        let roots = match &self.ca {
            Some(path) => tls::authorities(path).map_err(|error| Invalid(with_causes(&error)))?,
            None => tls::authorities_of_system(),
        };
        if roots.is_empty() && self.peers().any(|(_, peer)| peer.url.starts_with("https://")) {
            return Err(Invalid("this system has no certificate authorities: name a file of them as `ca`".to_owned()));
        }
        tls::trusting(roots).map_err(|error| Invalid(error.to_string()))
    }

    /// The host of this server's URL.
    pub fn own_host(&self) -> Option<String> {
        Some(Url::parse(&self.own().url).ok()?.host_str()?.to_owned())
    }

    /// The digest of the list, in hex. Instances with the same digest place each partition alike.
    pub fn digest(&self) -> String {
        let mut members: Vec<_> = self.all.iter().map(|one| [&one.name, &one.url, &one.zone]).collect();
        members.sort();
        hex(&Sha256::of(format!("{PLACEMENT}\n{}\n{members:?}", self.copies).as_bytes()).0)
    }

    /// The placement of a journal's partitions.
    pub fn placement(self: &Arc<Self>, partitions: u32) -> Placed {
        let members: Vec<_> = self.all.iter().map(|one| Member { name: &one.name, zone: &one.zone }).collect();
        Placed { holders: holders(partitions, &members, self.copies), instances: Arc::clone(self) }
    }

    /// The choice of the partitions to hold: the placed partitions, and partitions that are left over from an earlier list. A partition is
    /// left over if the data folder has records of it. It is given up if `copies` instances on which it is placed serve it.
    /// `serving` counts them for each partition of this journal and this log.
    pub fn choose(
        self: &Arc<Self>,
        serving: impl Fn(&Found<'_>, &Placed) -> BTreeMap<PartitionId, usize> + Send + Sync + 'static,
    ) -> Choose {
        let list = Arc::clone(self);
        Choose::new(move |found| {
            let placed = list.placement(found.journal.partitions);
            let is_here = |partition: &PartitionId| placed.is_here(*partition);
            let mut partitions: BTreeSet<_> = PartitionId::all(found.journal.partitions).filter(is_here).collect();
            let left_over: Vec<_> =
                found.indexed.iter().copied().filter(|partition| !partitions.contains(partition)).collect();
            if left_over.is_empty() {
                return partitions;
            }
            let serving = serving(found, &placed);
            for partition in left_over {
                let copies = serving.get(&partition).copied().unwrap_or(0);
                if copies < list.copies {
                    tracing::warn!(%partition, copies, "the partition is placed on other instances; this server keeps its copy");
                    partitions.insert(partition);
                } else {
                    tracing::info!(%partition, copies, "the partition is on other instances; this server no longer holds it");
                }
            }
            partitions
        })
    }
}

/// The placement of a journal's partitions on the instances of a list.
#[derive(Debug)]
pub struct Placed {
    instances: Arc<Instances>,
    /// The holders of each partition, as numbers in the list, the preferred holder first.
    holders: Vec<Vec<usize>>,
}

impl Placed {
    /// Whether a partition is placed on this server.
    pub fn is_here(&self, partition: PartitionId) -> bool {
        self.holders_of(partition).contains(&self.instances.own)
    }

    /// The URLs of the other instances on which a partition is placed, the preferred instance first.
    pub fn urls(&self, partition: PartitionId) -> Vec<String> {
        let holders = self.holders_of(partition).iter().filter(|holder| **holder != self.instances.own);
        holders.map(|holder| self.instances.all[*holder].url.clone()).collect()
    }

    fn holders_of(&self, partition: PartitionId) -> &[usize] {
        self.holders.get(partition.index()).map_or(&[], Vec::as_slice)
    }
}

impl Entry {
    fn checked(self) -> Result<Instance, Invalid> {
        let Self { name, url, zone } = self;
        let is_text = |text: &str| {
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            text.len() <= NAME_BYTES_MAX && text.bytes().all(legal)
        };
        if name.is_empty() || !is_text(&name) {
            return Err(Invalid(format!("the name {name:?} is not 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -")));
        }
        if !is_text(&zone) {
            return Err(Invalid(format!(
                "the zone {zone:?} of {name} is not at most {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -"
            )));
        }
        let url = checked_url(&url).map_err(|why| Invalid(format!("the URL {url:?} of {name} {why}")))?;
        Ok(Instance { name, url, zone })
    }
}

/// The URL without a path and with a host in lower case. The error completes "the URL …".
fn checked_url(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    let is_http = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    if !is_http {
        return Err("is not http:// or https:// with a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user: credentials of instances are in the token file".to_owned());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("has more than scheme, host and port: an instance is at the root of its address".to_owned());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Refuses equal names and URLs, and a list in which only some instances have a zone.
fn check_distinct(all: &[Instance]) -> Result<(), Invalid> {
    let (mut names, mut urls) = (BTreeSet::new(), BTreeSet::new());
    for Instance { name, url, .. } in all {
        if !names.insert(name) {
            return Err(Invalid(format!("two instances have the name {name}")));
        }
        if !urls.insert(url) {
            return Err(Invalid(format!("two instances have the URL {url}")));
        }
    }
    let has_zones = all.iter().any(|instance| !instance.zone.is_empty());
    match all.iter().find(|instance| has_zones && instance.zone.is_empty()) {
        Some(instance) => Err(Invalid(format!("{} has no zone, but another instance has one", instance.name))),
        None => Ok(()),
    }
}

fn is_loopback(url: &str) -> bool {
    let Some(host) = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)) else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
