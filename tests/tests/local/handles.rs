//! Concurrent calls and failing appends on one handle: on a local log, on a log in memory with faults, and over HTTP.

mod local {
    use runlog_tests::backend::Backend;

    async fn backend() -> Backend {
        Backend::local().await.expect("a journal")
    }

    runlog_tests::reopen_claims!(backend);
    runlog_tests::call_claims!(backend);
    runlog_tests::covered_call_claims!(backend);
    runlog_tests::record_claims!(backend);
    runlog_tests::batch_claims!(backend);
    runlog_tests::writing_claims!(backend);
}

mod memory {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicI64, Ordering},
        },
        time::Duration,
    };

    use runlog_log::{Clock, memory::MemoryOptions};
    use runlog_schemas::schema::BASIS_SINCE;
    use runlog_tests::backend::Backend;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[tokio::test(flavor = "multi_thread")]
    async fn the_age_of_a_run_is_by_the_clock_of_the_log() {
        let now = Arc::new(AtomicI64::new(1_000_000));
        let clock = now.clone();
        let clock = Clock::new(move || clock.load(Ordering::SeqCst));
        let backend = Backend::memory(MemoryOptions { clock, ..MemoryOptions::default() }).await.expect("a journal");
        // An agent whose clock is years ahead.
        let skewed = backend.connect(|config| config.clock = || u64::MAX >> 8).await;
        let run = skewed.open("aged").await.expect("open");
        run.flush().await.expect("applied");
        for (later, active) in [(59_999, true), (60_000, false)] {
            now.store(1_000_000 + later, Ordering::SeqCst);
            let opened = skewed.open_unless_active("aged", Duration::from_secs(60)).await;
            let age = opened.err().map(|error| error.active().expect("a writer").age.as_millis());
            assert_eq!(age, active.then_some(59_999), "after {later} ms");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_trace_goes_with_its_records_as_a_header() {
        let backend = backend().await;
        for (run, traceparent) in
            [("traced", (|| Some(TRACE.into())) as fn() -> Option<String>), ("not", || Some("?".into()))]
        {
            let runlog = backend.connect(|config| config.traceparent = traceparent).await;
            runlog.open(run).await.expect("open").turn("user", "hello").await.expect("a turn");
        }
        let traced = backend.headers("traced").await;
        assert!(traced.len() == 3 && traced.iter().all(|headers| headers["traceparent"] == TRACE), "{traced:?}");
        let not = backend.headers("not").await;
        assert!(not.len() == 3 && not.iter().all(|headers| !headers.contains_key("traceparent")), "{not:?}");
    }

    async fn backend() -> Backend {
        Backend::memory(MemoryOptions::default()).await.expect("a journal")
    }

    async fn backend_3() -> Backend {
        Backend::memory_writing(MemoryOptions::default(), BASIS_SINCE).await.expect("a journal")
    }

    runlog_tests::backend_claims! { backend, cancelled_calls:
        a_call_cancelled_while_it_is_read_back_counts_as_never_started,
        a_call_decided_after_it_was_cancelled_is_not_forgotten,
        a_call_cancelled_after_the_end_counts_as_never_started,
        a_call_abandoned_during_a_reopen_answers_once,
    }
    runlog_tests::backend_claims! { backend_3, cancelled_calls:
        a_repeat_cancelled_while_it_is_read_back_leaves_the_first_attempt_undecided,
    }
    runlog_tests::backend_claims! { backend, reopen:
        an_end_cancelled_while_it_is_read_back_stops_the_handle,
    }
    runlog_tests::backend_claims! { backend, interleavings:
        a_retry_cancelled_before_its_attempt_is_sent_forgets_no_call,
        a_handle_reopened_during_a_read_back_keeps_its_run_and_its_call,
    }
    runlog_tests::backend_claims! { backend, writing:
        a_write_that_is_not_read_back_is_unknown_until_it_is_written_again,
    }
    runlog_tests::backend_claims! { backend, records:
        a_timed_out_operation_reports_what_it_left,
    }
    runlog_tests::reopen_claims!(backend);
    runlog_tests::call_claims!(backend);
    runlog_tests::covered_call_claims!(backend);
    runlog_tests::record_claims!(backend);
    runlog_tests::batch_claims!(backend);
    runlog_tests::writing_claims!(backend);
}

mod http {
    use runlog_log::{
        Log,
        local::{LocalConfig, LocalLog},
    };
    use runlog_producer::Runlog;
    use runlog_tests::{backend::Backend, deployment::Deployment};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_trace_goes_through_the_server_into_the_log() {
        const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let deployment = Deployment::http().expect("a server");
        let mut config = deployment.config(&deployment.server.url).expect("a journal");
        config.traceparent = || Some(TRACE.into());
        let runlog = Runlog::connect(config).await.expect("a journal");
        let position = runlog.open("traced").await.expect("open").turn("user", "hello").await.expect("a turn");
        let folder = deployment.path("data").join("log");
        deployment.server.kill().expect("killed");
        let log = LocalLog::open(LocalConfig::new(folder)).expect("its log");
        let mut reader = log.reader(&[(position.partition, position.offset)]).expect("a reader");
        let deliveries = reader.poll(1, std::time::Duration::from_secs(60)).expect("records");
        let traces = deliveries[0].headers.iter().filter(|(name, _)| name == "traceparent");
        assert_eq!(traces.map(|(_, value)| value.as_slice()).collect::<Vec<_>>(), [TRACE.as_bytes()]);
    }

    async fn backend() -> Backend {
        Backend::http().await.expect("a server")
    }

    runlog_tests::reopen_claims!(backend);
    runlog_tests::call_claims!(backend);
    runlog_tests::covered_call_claims!(backend);
    runlog_tests::record_claims!(backend);
    runlog_tests::batch_claims!(backend);
    runlog_tests::writing_claims!(backend);
}
