//! Read index requests: how far does the state have to be? Many readers share one.

use frieze_base::{Fault, LogIndex};

/// One request is under way at a time. A reader that comes meanwhile waits for the next one, which is sent afterwards.
#[derive(Default)]
pub(super) struct ReadIndexQueue {
    /// The number of the last question asked.
    last: u64,
    under_way: bool,
    /// A reader waits for the next one.
    again: bool,
    /// The last one that was answered.
    answered: u64,
    answer: Option<Result<LogIndex, Fault>>,
}

impl ReadIndexQueue {
    /// Asks another. Returns its number.
    pub(super) fn ask(&mut self) -> u64 {
        self.last += 1;
        (self.under_way, self.again) = (true, false);
        self.last
    }

    /// The question to wait for, if one is under way: the one after it. `None`: ask.
    pub(super) fn join(&mut self) -> Option<u64> {
        self.again |= self.under_way;
        self.under_way.then_some(self.last + 1)
    }

    /// True if it is time to ask the next.
    pub(super) fn take_again(&mut self) -> bool {
        !self.under_way && std::mem::take(&mut self.again)
    }

    pub(super) fn answered(&mut self, question: u64, answer: Result<LogIndex, Fault>) {
        if self.under_way && question == self.last {
            self.under_way = false;
            self.answered = question;
            self.answer = Some(answer);
        }
    }

    /// What was answered to this question, or to a later one.
    pub(super) fn answer(&self, question: u64) -> Option<Result<LogIndex, Fault>> {
        if self.answered >= question { self.answer.clone() } else { None }
    }

    /// Every request fails from now on.
    pub(super) fn fail(&mut self, fault: &Fault) {
        (self.under_way, self.again) = (false, false);
        self.last += 1;
        (self.answered, self.answer) = (self.last, Some(Err(fault.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_while_a_question_is_under_way_waits_for_the_next() {
        let mut questions = ReadIndexQueue::default();
        assert_eq!(questions.join(), None);
        let first = questions.ask();
        let second = questions.join().expect("one is under way");
        assert!(!questions.take_again(), "the first is not answered");
        questions.answered(first, Ok(LogIndex(5)));
        assert_eq!((questions.answer(first), questions.answer(second)), (Some(Ok(LogIndex(5))), None));
        assert!(questions.take_again());
        assert_eq!(questions.ask(), second);
        questions.answered(first, Ok(LogIndex(6)));
        assert_eq!(questions.answer(second), None, "that was the answer to the first, once more");
        questions.answered(second, Ok(LogIndex(7)));
        assert_eq!(questions.answer(first), Some(Ok(LogIndex(7))), "a later answer is good for an earlier question");
    }

    #[test]
    fn a_member_that_fails_answers_everybody() {
        let mut questions = ReadIndexQueue::default();
        let first = questions.ask();
        let second = questions.join().expect("one is under way");
        questions.fail(&Fault::from(frieze_base::Reason::InputOutput));
        assert!(matches!(questions.answer(first), Some(Err(_))) && matches!(questions.answer(second), Some(Err(_))));
    }
}
