//! Runlog.
