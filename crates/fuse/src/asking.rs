//! How the mount asks the server: on whose behalf, in which view, and for the right to cache the answer.

use frieze_base::Reason;
use frieze_client::{Caller, Fs};
use nix::errno::Errno;

use crate::cache::Asking;
use crate::errno::answer;
use crate::node::When;
use crate::operations::Who;
use crate::process::groups_of;
use crate::tree::{SET_GROUP_ID, Tree};

impl Tree {
    /// Asks the server as the caller, in a view. If it refuses for want of a right, asks once more with the caller's
    /// supplementary groups, which are not looked up before they matter (protocols §6).
    pub(crate) fn ask<T>(
        &self,
        who: Who,
        when: When,
        call: impl Fn(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        self.ask_noting(who, when, None, call)
    }

    /// The same, asking for the right to cache the answer.
    pub(crate) fn ask_noting<T>(
        &self,
        who: Who,
        when: When,
        asking: Option<&Asking>,
        call: impl Fn(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        let view = match asking {
            Some(asking) => self.view(when).leasing(asking.granted.clone()),
            None => self.view(when),
        };
        if !self.impersonates {
            return call(&view).map_err(|error| answer(&error.into()));
        }
        let caller = Caller { uid: who.uid, gid: who.gid, groups: Vec::new() };
        match call(&view.as_caller(caller)) {
            Err(error) if who.uid != 0 && for_want_of_a_right(error.reason()) => {
                let groups = groups_of(who.thread);
                if groups.is_empty() {
                    return Err(answer(&error.into()));
                }
                self.ask_with_groups(who, groups, when, call)
            }
            Err(error) => Err(answer(&error.into())),
            Ok(value) => Ok(value),
        }
    }

    /// The same with the supplementary groups from the start: where a missing one is no refusal but another result.
    pub(crate) fn ask_knowing_groups<T>(
        &self,
        who: Who,
        when: When,
        call: impl Fn(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        if !self.impersonates || who.uid == 0 {
            return self.ask(who, when, call);
        }
        self.ask_with_groups(who, groups_of(who.thread), when, call)
    }

    /// Asks to make a file: whether it may be a program of its directory's group depends on the groups of who asks.
    pub(crate) fn ask_to_make<T>(
        &self,
        who: Who,
        mode: u32,
        asking: Option<&Asking>,
        call: impl Fn(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        match mode & SET_GROUP_ID {
            0 => self.ask_noting(who, self.base, asking, call),
            _ => self.ask_knowing_groups(who, self.base, call),
        }
    }

    pub(crate) fn ask_with_groups<T>(
        &self,
        who: Who,
        groups: Vec<u32>,
        when: When,
        call: impl Fn(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        let caller = Caller { uid: who.uid, gid: who.gid, groups };
        call(&self.view(when).as_caller(caller)).map_err(|error| answer(&error.into()))
    }

    /// Asks as the superuser where the mount may speak for others, else as the session's user.
    pub(crate) fn ask_as_mount<T>(
        &self,
        when: When,
        call: impl FnOnce(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        self.ask_as_mount_noting(when, None, call)
    }

    /// The same, asking for the right to cache the answer.
    pub(crate) fn ask_as_mount_noting<T>(
        &self,
        when: When,
        asking: Option<&Asking>,
        call: impl FnOnce(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        let fs = self.view(when);
        let fs = if self.impersonates { fs.as_caller(Caller::root()) } else { fs };
        let fs = asking.map_or(fs.clone(), |asking| fs.leasing(asking.granted.clone()));
        call(&fs).map_err(|error| answer(&error.into()))
    }

    pub(crate) fn view(&self, when: When) -> Fs {
        let mut fs = self.client.fs();
        if let Some(at) = when.at {
            fs = fs.at(at);
        }
        if let Some(user_at) = when.user_at {
            fs = fs.user_at(user_at);
        }
        fs
    }
}

fn for_want_of_a_right(reason: Reason) -> bool {
    matches!(reason, Reason::AccessDenied | Reason::NotPermitted)
}
