//! What the gate promises to an agent that comes back, on a journal in this process and on one over HTTP.

mod local {
    use runlog_producer::{Config, Journal, Runlog};

    async fn journal() -> (tempfile::TempDir, Runlog) {
        let dir = tempfile::tempdir().expect("a folder");
        let config = Config::new(Journal::Local(dir.path().to_owned()), "test");
        (dir, Runlog::connect(config).await.expect("a journal"))
    }

    runlog_tests::gate_claims!(journal);
}

mod http {
    use runlog_producer::Runlog;
    use runlog_tests::{
        claims::{decisions, gate},
        site::Site,
    };

    async fn journal() -> (Site, Runlog) {
        let site = Site::http().expect("a server");
        let runlog = site.connect().await.expect("a journal");
        (site, runlog)
    }

    runlog_tests::gate_claims!(journal);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_recorded_answer_that_breaks_off_is_fetched_again_and_the_effect_does_not_run() {
        let site = Site::http().expect("a server");
        gate::a_recorded_answer_that_breaks_off_is_fetched_again_and_the_effect_does_not_run(&site).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_given_up_and_then_decided_as_done_does_not_run_again() {
        gate::a_call_given_up_and_then_decided_as_done_does_not_run_again(&Site::http().expect("a server")).await;
    }

    #[test]
    fn what_is_decided_is_what_agents_get() -> anyhow::Result<()> {
        decisions::what_is_decided_is_what_agents_get(&Site::http()?)
    }

    #[test]
    fn the_evidence_of_a_fenced_result_can_be_adopted() -> anyhow::Result<()> {
        decisions::the_evidence_of_a_fenced_result_can_be_adopted(&Site::http()?)
    }
}
