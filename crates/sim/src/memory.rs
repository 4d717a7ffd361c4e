//! Answers about exact instants, remembered word for word, to be asked for again after more has happened.

use frieze_base::{Reason, Rng};
use frieze_wire::message::View;
use frieze_wire::txn::Target;

/// A question about an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) target: Target,
    pub(crate) view: View,
    pub(crate) what: Asks,
}

/// What it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Stat,
    List,
    Link,
    Xattr { name: Vec<u8> },
    Bytes { offset: u64, len: u32 },
}

/// An answer in a form that can be compared: the code of a refusal, or bytes.
pub(crate) type Told = Result<Vec<u8>, u32>;

/// The answers given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    answers: Vec<(Question, Told)>,
}

/// Answers kept; beyond, a new one takes the place of some older one.
const ANSWERS_MAX: usize = 256;

impl Memory {
    /// Remembers an answer.
    pub(crate) fn remember(&mut self, question: Question, told: Told) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push((question, told));
        } else {
            let place = (frieze_base::crc32c(&question.target.path) as usize ^ self.answers.len()) % ANSWERS_MAX;
            self.answers[place] = (question, told);
        }
    }

    /// One of the answers.
    pub(crate) fn choose(&self, rng: &mut Rng) -> Option<usize> {
        (!self.answers.is_empty()).then(|| rng.below(self.answers.len() as u64) as usize)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Question and answer `place`.
    pub(crate) fn get(&self, place: usize) -> (Question, Told) {
        self.answers[place].clone()
    }

    /// The answer has changed, as it may inside a gap.
    pub(crate) fn replace(&mut self, place: usize, told: Told) {
        self.answers[place].1 = told;
    }

    /// A forgetting was lost before anybody was told of it: what it refused is answered again.
    pub(crate) fn forget_refusals(&mut self) {
        self.answers.retain(|(_, told)| *told != Err(Reason::HistoryExpired as u32));
    }

    /// What was lost takes user times along, and those answers name no instant that could be called incomplete.
    pub(crate) fn forget_by_user_time(&mut self) {
        self.answers.retain(|(question, _)| question.view.at.is_some());
    }
}
