//! A session as front ends use it: states, commands, limits, measured changes, and its thread.

mod common;

#[path = "session/advice.rs"]
mod advice;
#[path = "session/any_order.rs"]
mod any_order;
#[path = "session/states.rs"]
mod states;
#[path = "session/support.rs"]
mod support;
#[path = "session/thread.rs"]
mod thread;
#[path = "session/tracers.rs"]
mod tracers;
#[path = "session/tracing.rs"]
mod tracing;
