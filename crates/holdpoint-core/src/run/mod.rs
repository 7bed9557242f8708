//! The run machine: one pass of an agent from an input to an answer, without I/O.
//!
//! [`Run::step`] takes one input, changes the control state, writes down what is to be stored ([`Changes`]) and
//! says what is to be done after that ([`Effect`]). Whoever drives it stores the changes in one transaction and
//! only then performs the effects; what they bring is the next input. An input that does not fit where the run
//! stands is refused and changes nothing, so that nothing can happen twice.
//!
//! The files follow the way of a call: `reply` takes it from the model, `gate` rules on it and - the only place -
//! makes its [`crate::permit::Permit`], `ask` puts it to a person, `decide` applies what people said, `settle` answers
//! it, `advance` says what is next, `end` closes rounds and runs, `withdraw` the requests nobody need answer any more;
//! `aside` holds a run that was set aside until an operator has decided.

mod advance;
mod aside;
mod ask;
mod decide;
mod effect;
mod end;
mod gate;
mod input;
mod open;
mod reply;
mod settle;
mod state;
mod step;
mod withdraw;

pub use aside::SetAside;
pub use effect::*;
pub use input::*;
pub use open::*;
pub use state::*;
