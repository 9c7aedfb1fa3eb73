use super::*;

fn home(log: &str, origin: &str) -> HomeRow {
    HomeRow { epoch: 1, log: log.into(), origin: origin.into(), ..HomeRow::default() }
}

/// A server of this log whose journal has this home.
fn view(own: Option<&str>, role: Role, known: Option<HomeRow>) -> View {
    let own = own.map(|own| LogId::parse(own).unwrap());
    let (reads_committed, caught_up) = (role == Role::Mirror, Vec::new());
    View { journal: "j".into(), own, role, known, reads_committed, caught_up, runs_in_doubt: 0 }
}

fn caught_up(partition: u16, epoch: u32, ends_in_record: bool) -> CaughtUp {
    CaughtUp { partition: partition.into(), epoch, ends_in_record }
}

/// Severity and problem of each finding.
fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}: {}", finding.severity, finding.what)).collect()
}

fn settings(create_time: Option<bool>) -> LogSettings {
    LogSettings { partitions: Some(4), create_time, ..LogSettings::default() }
}

#[test]
fn a_home_has_no_finding_and_a_mirror_names_both_logs() {
    let home_of_b = || Some(home("kafka:c:b", "kafka:c:b"));
    assert_eq!(shown(&view(Some("kafka:c:b"), Role::Home, home_of_b()).findings(None)), [""; 0]);
    let mirror = view(Some("kafka:c:a"), Role::Mirror, home_of_b());
    let what = "warning: this server reads a mirror of journal j: log kafka:c:a, home kafka:c:b";
    assert_eq!(shown(&mirror.findings(Some(&settings(Some(true))))), [what]);
    let unproved = shown(&view(None, Role::Mirror, home_of_b()).findings(None));
    assert!(unproved.len() == 1 && unproved[0].contains("give no topic id"), "{unproved:?}");
}

#[test]
fn two_homes_are_an_error() {
    let row = HomeRow { rival: "kafka:c:b".into(), ..home("kafka:c:a", "kafka:c:a") };
    let findings = shown(&view(Some("kafka:c:a"), Role::Contested, Some(row)).findings(None));
    let expected = "error: journal j has home records of two logs, kafka:c:a and kafka:c:b";
    assert!(findings[0].starts_with(expected), "{findings:?}");
}

#[test]
fn the_command_that_sets_a_home_is_not_shown_where_the_topic_looks_like_a_mirror() {
    let unknown = view(Some("kafka:c:a"), Role::Unknown, None);
    let fix = |create_time| unknown.findings(Some(&settings(create_time)))[0].fix.clone();
    assert!(fix(Some(false)).contains("runlog home init kafka:c:a "), "{}", fix(Some(false)));
    for create_time in [Some(true), None] {
        assert!(!fix(create_time).contains("kafka:c:a"), "{}", fix(create_time));
    }
}

#[test]
fn a_log_without_mirrors_needs_no_home() {
    let none = LogSettings::default();
    assert_eq!(shown(&view(Some("local:x"), Role::Unknown, None).findings(Some(&none))), [""; 0]);
    assert_eq!(shown(&view(None, Role::Unknown, None).findings(Some(&none))), [""; 0]);
    let brokers_without_ids = view(None, Role::Unknown, None).findings(Some(&settings(None)));
    assert_eq!(brokers_without_ids.len(), 1, "{brokers_without_ids:?}");
}

#[test]
fn a_mirror_without_transaction_markers_is_reported_with_its_partitions() {
    let mut mirror = view(Some("kafka:c:a"), Role::Mirror, Some(home("kafka:c:b", "kafka:c:b")));
    let own_findings = |view: &View| {
        let all = shown(&view.findings(None)).into_iter();
        all.filter(|what| what.contains("transaction marker")).collect::<Vec<_>>()
    };
    mirror.caught_up = vec![caught_up(0, 1, true), caught_up(1, 1, false), caught_up(3, 1, true)];
    let [only] = &own_findings(&mirror)[..] else { panic!("{:?}", own_findings(&mirror)) };
    assert!(only.contains("the last record of partitions 0, 3 has no"), "{only}");
    mirror.caught_up = vec![caught_up(1, 1, false)];
    assert_eq!(own_findings(&mirror), [""; 0]);
    // A home has no markers, because Runlog appends outside of transactions.
    let mut own = view(Some("kafka:c:a"), Role::Home, Some(home("kafka:c:a", "kafka:c:a")));
    own.caught_up = vec![caught_up(0, 1, true)];
    assert_eq!(shown(&own.findings(None)), [""; 0]);
}

#[test]
fn a_server_that_learned_late_that_its_log_began_as_a_mirror_must_restart() {
    let late = |role, own: &str, origin: &str| {
        let view = View { reads_committed: false, ..view(Some(own), role, Some(home("kafka:c:b", origin))) };
        shown(&view.findings(None)).iter().filter(|what| what.contains("aborted transactions")).count()
    };
    assert_eq!(late(Role::Mirror, "kafka:c:a", "kafka:c:b"), 1);
    assert_eq!(late(Role::Home, "kafka:c:b", "kafka:c:a"), 1, "it took over");
    assert_eq!(late(Role::Home, "kafka:c:b", "kafka:c:b"), 0);
    assert_eq!(late(Role::Mirror, "memory:a", "kafka:c:b"), 0, "the log has no transactions");
}

#[test]
fn a_partition_of_the_home_without_its_record_is_reported_with_the_command_that_adds_it() {
    let mut own = view(Some("kafka:c:a"), Role::Home, Some(home("kafka:c:a", "kafka:c:a")));
    own.caught_up = vec![caught_up(0, 1, true), caught_up(1, 0, true)];
    let [finding] = &own.findings(None)[..] else { panic!("{:?}", own.findings(None)) };
    assert_eq!(finding.what, "the record of the home kafka:c:a is missing in partition 1");
    assert!(finding.fix.contains("runlog home init kafka:c:a "), "{}", finding.fix);
    let from_b = HomeRow { epoch: 2, from: "kafka:c:b".into(), ..home("kafka:c:a", "kafka:c:b") };
    let taken = |role, own| View { reads_committed: true, ..view(Some(own), role, Some(from_b.clone())) };
    let mut own = taken(Role::Home, "kafka:c:a");
    own.caught_up = vec![caught_up(0, 2, false), caught_up(1, 1, false)];
    let findings = own.findings(None);
    assert!(findings.len() == 1 && findings[0].fix.contains("--take-home kafka:c:b "), "{findings:?}");
    // On a mirror the record may still arrive.
    let mut mirror = taken(Role::Mirror, "kafka:c:z");
    mirror.caught_up = vec![caught_up(1, 1, false)];
    assert_eq!(mirror.findings(None).len(), 1, "{:?}", mirror.findings(None));
}

#[test]
fn a_mirrors_settings_are_corrected_at_the_source_and_only_if_they_lose_records() {
    let weakness = |can_lose| Weakness { setting: "retention.ms", can_lose, what: "w".into() };
    let fix = |can_lose, read_only| of_weakness(weakness(can_lose), read_only).map(|finding| finding.fix);
    assert_eq!(fix(false, true), None);
    assert!(fix(true, true).unwrap().contains("the source's topic"));
    assert!(fix(false, false).unwrap().contains("change the topic's configuration"));
}

#[test]
fn runs_in_doubt_are_counted_and_the_command_that_accepts_them_is_for_the_home() {
    let after = HomeRow { epoch: 2, from: "kafka:c:lost".into(), ..home("kafka:c:a", "kafka:c:a") };
    let finding = |role, own, count| {
        let view = View { runs_in_doubt: count, reads_committed: true, ..view(Some(own), role, Some(after.clone())) };
        view.findings(None).into_iter().find(|finding| finding.what.contains("kafka:c:lost"))
    };
    assert_eq!(finding(Role::Home, "kafka:c:a", 0), None);
    let at_home = finding(Role::Home, "kafka:c:a", 2).unwrap();
    assert!(at_home.what.contains("2 open runs") && at_home.fix.contains("runlog home accept"), "{at_home:?}");
    assert!(!finding(Role::Mirror, "kafka:c:m", 2).unwrap().fix.contains("runlog"), "a mirror accepts no runs");
}
