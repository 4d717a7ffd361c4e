//! Reads of now: how far the state here has to be (Raft §6.4).

use frieze_base::Fault;
use frieze_metalog::{Error, MemberInput};

use super::super::state::AppliedState;
use super::driver::{InputReply, RaftCore, RaftDriver};

impl RaftDriver {
    /// Asks how far this member has to be. Returns the question's number.
    pub(super) fn ask_read_index(&self, core: &mut RaftCore, state: &AppliedState) -> u64 {
        let token = core.questions.ask();
        self.step(core, state, self.clock.newest(), MemberInput::Read { token }, InputReply::Read(token));
        token
    }

    /// Waits until the namespace here holds everything that anybody was told before the call.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: no majority answers, or this server is no member: ask again, or another.
    pub(crate) fn linearizable(&self, state: &AppliedState) -> Result<(), Fault> {
        let question = {
            let mut core = self.lock();
            match core.questions.join() {
                Some(question) => question,
                None => self.ask_read_index(&mut core, state),
            }
        };
        self.wait(|| match self.lock().questions.answer(question)? {
            Ok(index) if self.applied() < index => None,
            Ok(_) => Some(Ok(())),
            Err(fault) => Some(Err(fault)),
        })
        .unwrap_or_else(|| Err(Error::NoAnswer.into()))
    }
}
