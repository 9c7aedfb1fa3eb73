//! The gate's claims for an agent that restarts: on a journal in this process, and over HTTP.

mod local {
    use runlog_producer::{Config, Journal, LoopState, Runlog, Subject};
    use runlog_schemas::{answer::ErrorKind, json::Json};
    use serde_json::json;

    async fn journal() -> (tempfile::TempDir, Runlog) {
        let dir = tempfile::tempdir().expect("a folder");
        let config = Config::new(Journal::Local(dir.path().to_owned()), "test");
        (dir, Runlog::connect(config).await.expect("a journal"))
    }

    runlog_tests::gate_claims!(journal);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_checkpoint_carries_only_new_messages_and_builds_on_the_recovered_one_after_a_takeover() {
        let (_dir, runlog) = journal().await;
        // Each exceeds the limit of a record, so its payload is in the content store.
        let message = |n: usize| Json::from(json!({"n": n, "content": "x".repeat(400_000)}));
        let mut state = LoopState::default();
        let mut run = runlog.open("r").await.expect("open");
        for n in 0..9 {
            state.messages.push(message(n));
            if n == 5 {
                // Edited in the middle, by a new text and by a text that exists already.
                state.messages[2] = message(12);
                state.messages.swap(0, 1);
            }
            state.turn += 1;
            run.checkpoint(&state).await.expect("a checkpoint");
            if n % 3 == 2 {
                run = runlog.open("r").await.expect("open");
                let saved = run.recovery().checkpoint.as_ref().expect("a checkpoint");
                assert_eq!(saved.messages.as_ref(), Some(&state.messages));
                // The agent resumes with the recovered messages.
                state.messages = saved.messages.clone().expect("messages");
            }
        }
        // A state too large for the content store is refused before it is numbered, and the handle continues.
        state.messages.push(Json::from(json!("x".repeat(65 << 20))));
        let error = run.checkpoint(&state).await.expect_err("too large");
        assert_eq!((error.kind(), error.action()), (ErrorKind::TooLarge, runlog_producer::Action::FixTheInput));
        state.messages.truncate(9);
        run.checkpoint(&state).await.expect("a checkpoint");
        run.prune_checkpoints(0.into(), false).await.expect("a prune");
        state.messages = vec![message(1)];
        run.checkpoint(&state).await.expect("a whole checkpoint");
        let run = runlog.open("r").await.expect("open");
        assert_eq!(run.recovery().checkpoint.as_ref().expect("a checkpoint").messages.as_ref(), Some(&state.messages));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_error_carries_run_record_and_position_as_fields() {
        let (_dir, runlog) = journal().await;
        let lost = runlog.open("r").await.expect("open");
        let run = runlog.open("r").await.expect("open");
        let error = lost.tool("book", &1).once(|_| async { Ok(json!(1).into()) }).await.expect_err("fenced");
        let Subject { run_id, topic, partition, offset, record_id } = error.subject();
        assert_eq!(run_id.as_ref(), Some(run.id()));
        let (record_id, offset) = (record_id.as_ref().expect("a record"), offset.expect("an offset"));
        assert!(error.to_string().contains(record_id.as_str()), "{error}");
        let after = &run.turn("said", &"it").await.expect("a turn");
        assert_eq!((topic.as_ref(), *partition), (Some(&after.topic), Some(after.partition)));
        assert!(offset < after.offset, "{offset} {after:?}");
    }
}

mod http {
    use runlog_tests::deployment::Deployment;

    runlog_tests::served_claims!(Deployment::http);
}
