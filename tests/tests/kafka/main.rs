//! Claims on a real broker: one module per claim.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

mod agents;
mod broker_loss;
mod broker_pauses;
mod calls_together;
mod confluent;
mod conformance;
mod connections_cut;
mod content_s3;
mod damaged_batch;
mod doctor;
mod gates_race;
mod homes;
mod log_contract;
mod log_ids;
mod mirrors;
mod model_agrees;
mod new_topics;
mod ports_bob_core;
mod ports_codetether;
mod ports_observability;
mod projector_kill;
mod python_decodes;
mod recreated_topic;
mod secured_broker;
mod tail_all;
mod take_home;
mod three_brokers;
mod unreadable_records;
mod upgrade;
