//! An operation as its process runs it: dropped, or resumed late, at any of its awaits.

use std::{
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Sleep, sleep};

/// A future that wraps an operation's future and applies the faults.
pub(crate) struct Guard<'a, T> {
    /// `None` once it is dropped.
    inner: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    polls: u32,
    cut: Option<u32>,
    /// Whether the operation's effect has begun, and the number of polls since then after which it is dropped.
    cut_in_effect: Option<(&'a AtomicBool, u32)>,
    pauses: Vec<(u32, u64)>,
    /// Called when the pause before this poll begins.
    when_paused: Option<(u32, Box<dyn FnOnce() + Send + 'a>)>,
    pause: Option<Pin<Box<Sleep>>>,
    /// How long its process was paused, milliseconds.
    pub(crate) paused: u64,
}

impl<'a, T> Guard<'a, T> {
    /// Drops the operation when it waits after `cut` polls, or after so many polls since its effect began. Pauses for
    /// the given milliseconds before each of the listed polls, counted from 0.
    pub(crate) fn new(
        operation: impl Future<Output = T> + Send + 'a,
        cut: Option<u32>,
        cut_in_effect: Option<(&'a AtomicBool, u32)>,
        pauses: Vec<(u32, u64)>,
    ) -> Self {
        let inner: Pin<Box<dyn Future<Output = T> + Send + 'a>> = Box::pin(operation);
        let (inner, when_paused) = (Some(inner), None);
        Self { inner, polls: 0, cut, cut_in_effect, pauses, when_paused, pause: None, paused: 0 }
    }

    /// Calls a function when the pause before this poll begins.
    pub(crate) fn when_paused(mut self, polls: u32, call: impl FnOnce() + Send + 'a) -> Self {
        self.when_paused = Some((polls, Box::new(call)));
        self
    }

    /// Counts a poll of the effect. Returns whether it was the last one.
    fn is_cut_in_effect(&mut self) -> bool {
        let Some((_, left)) = self.cut_in_effect.as_mut().filter(|(begun, _)| begun.load(Ordering::Relaxed)) else {
            return false;
        };
        *left = left.saturating_sub(1);
        *left == 0
    }
}

impl<T> Future for Guard<'_, T> {
    /// `None` if it was dropped.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let now = self.polls;
        if let Some(at) = self.pauses.iter().position(|(polls, _)| *polls == now) {
            let (_, ms) = self.pauses.swap_remove(at);
            self.paused += ms;
            if let Some((_, call)) = self.when_paused.take_if(|(polls, _)| *polls == now) {
                call();
            }
            self.pause = Some(Box::pin(sleep(Duration::from_millis(ms))));
        }
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
        self.polls += 1;
        let cut = self.cut == Some(self.polls);
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        match inner.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.is_cut_in_effect() || cut => {
                self.inner = None;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
