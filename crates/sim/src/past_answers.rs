//! Answers about exact instants, stored byte for byte, to be asked again after more has happened.

use frieze_base::{Reason, Rng};
use frieze_wire::message::{DirEntry, View};
use frieze_wire::txn::Target;
use prost::Message;

/// A question about an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) target: Target,
    pub(crate) view: View,
    pub(crate) what: QuestionKind,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuestionKind {
    Stat,
    List,
    Link,
    Xattr { name: Vec<u8> },
    Bytes { offset: u64, len: u32 },
}

/// An answer in a form that can be compared: the code of a refusal, or bytes.
pub(crate) type ComparableAnswer = Result<Vec<u8>, u32>;

/// The answers given.
#[derive(Clone, Debug, Default)]
pub(crate) struct PastAnswers {
    answers: Vec<(Question, ComparableAnswer)>,
}

/// Answers kept; beyond, a new one takes the place of some older one.
const ANSWERS_MAX: usize = 256;

impl PastAnswers {
    /// Remembers an answer.
    pub(crate) fn remember(&mut self, question: Question, answer: ComparableAnswer) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push((question, answer));
        } else {
            let place = (frieze_base::crc32c(&question.target.path) as usize ^ self.answers.len()) % ANSWERS_MAX;
            self.answers[place] = (question, answer);
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
    pub(crate) fn get(&self, place: usize) -> (Question, ComparableAnswer) {
        self.answers[place].clone()
    }

    /// The answer has changed, as it may inside a gap.
    pub(crate) fn replace(&mut self, place: usize, answer: ComparableAnswer) {
        self.answers[place].1 = answer;
    }

    /// An expiry was lost, or the removal of a named instant that holds one back: what was refused, or left out of a
    /// listing, is answered again.
    pub(crate) fn forget_refusals(&mut self) {
        self.answers.retain(|(question, answer)| {
            let lists = question.what == QuestionKind::List;
            let leaves_out = lists && entries_of(answer).iter().any(|entry| entry.attr.is_none());
            *answer != Err(Reason::HistoryExpired as u32) && !leaves_out
        });
    }

    /// Lost records take their user times along, and those answers name no instant that could be marked incomplete.
    pub(crate) fn forget_by_user_time(&mut self) {
        self.answers.retain(|(question, _)| question.view.at.is_some());
    }
}

/// The entries of a listing as it is remembered.
pub(crate) fn entries_of(answer: &ComparableAnswer) -> Vec<DirEntry> {
    let (mut entries, mut rest) = (Vec::new(), answer.as_deref().unwrap_or_default());
    while let Ok(entry) = DirEntry::decode_length_delimited(&mut rest) {
        entries.push(entry);
    }
    entries
}
