//! The sink loads the checkpoints that it saved, whichever process is killed in between: through a server on a local
//! log, and through a server on Kafka. The feature `kafka` adds direct writes to the broker. The feature `embedded`
//! adds log and projector in the killed process.
//!
//! `RUNLOG_BIN` names the command. The tests on Kafka need `RUNLOG_BROKERS`, a running broker:
//! scripts/test-ports-heavy.sh starts one, or leaves these tests out and says so.
#![allow(clippy::unwrap_used, reason = "an integration test")]

mod claims;
mod server;
mod session;

/// The claims, on one kind of log.
macro_rules! claims {
    ($log:ident) => {
        mod $log {
            use crate::{claims, session, server::Server};

            claims! { $log:
                a_saved_checkpoint_is_loaded_complete_by_another_process;
                none_is_answered_only_where_the_log_has_none;
                later_versions_are_refused_and_unversioned_ones_read;
                checkpoints_of_another_run_session_or_agent_are_refused;
                a_lost_checkpoint_stops_nothing_and_the_next_save_repairs_it;
                a_timed_out_save_is_settled_by_the_next;
                a_load_waits_for_the_journal_to_return;
                eight_concurrent_savers_lose_no_save;
                with_eight_processes_on_a_run_the_last_save_is_loaded;
                a_process_that_was_taken_over_saves_nothing;
                a_round_writes_only_its_new_messages;
                a_session_store_moves_only_its_loop_checkpoints_to_runlog;
                a_killed_loop_continues_after_its_last_saved_round;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_killed_session_is_resumed_by_another_with_all_of_its_rounds() {
                session::runs_its_rounds_if_it_is_the_first().await;
                session::a_killed_session_is_resumed_by_another_with_all_of_its_rounds(&mut Server::$log()).await;
            }
        }
    };
    ($log:ident: $($claim:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $claim() {
            claims::$claim(&mut Server::$log()).await;
        }
    )*};
}

claims!(local);
claims!(kafka);

/// Appends to the broker directly, without a server.
#[cfg(feature = "kafka")]
mod kafka_itself {
    use crate::{claims, server::Server};

    claims! { kafka_itself:
        a_saved_checkpoint_is_loaded_complete_by_another_process;
        later_versions_are_refused_and_unversioned_ones_read;
        eight_concurrent_savers_lose_no_save;
        a_process_that_was_taken_over_saves_nothing;
    }
}

#[cfg(feature = "embedded")]
#[test]
fn a_killed_loop_with_an_embedded_journal_continues_after_its_last_saved_round() {
    claims::a_killed_loop_with_an_embedded_journal_continues_after_its_last_saved_round();
}
