//! Requests of the mount to the server: on whose behalf, in which view, and with a request for a cache grant.

use frieze_base::Reason;
use frieze_client::{Caller, Fs};
use nix::errno::Errno;

use crate::attributes::SET_GROUP_ID;
use crate::cache::GrantRequest;
use crate::errno::answer;
use crate::node::ViewTime;
use crate::operations::FuseCaller;
use crate::process::groups_of;
use crate::tree::MountTree;

impl MountTree {
    /// Sends a request as the caller, in a view. If the server refuses for want of a right, sends it once more with the
    /// caller's supplementary groups, which are not looked up before they matter (protocols §6).
    pub(crate) fn ask<T>(
        &self,
        who: FuseCaller,
        when: ViewTime,
        call: impl Fn(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        self.ask_noting(who, when, None, call)
    }

    /// The same, asking for the right to cache the answer.
    pub(crate) fn ask_noting<T>(
        &self,
        who: FuseCaller,
        when: ViewTime,
        asking: Option<&GrantRequest>,
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
        who: FuseCaller,
        when: ViewTime,
        call: impl Fn(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        if !self.impersonates || who.uid == 0 {
            return self.ask(who, when, call);
        }
        self.ask_with_groups(who, groups_of(who.thread), when, call)
    }

    /// Sends a request to create a file: whether it may be a set-group-id program of its directory's group depends on
    /// the caller's groups.
    pub(crate) fn ask_to_make<T>(
        &self,
        who: FuseCaller,
        mode: u32,
        asking: Option<&GrantRequest>,
        call: impl Fn(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        match mode & SET_GROUP_ID {
            0 => self.ask_noting(who, self.base, asking, call),
            _ => self.ask_knowing_groups(who, self.base, call),
        }
    }

    pub(crate) fn ask_with_groups<T>(
        &self,
        who: FuseCaller,
        groups: Vec<u32>,
        when: ViewTime,
        call: impl Fn(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        let caller = Caller { uid: who.uid, gid: who.gid, groups };
        call(&self.view(when).as_caller(caller)).map_err(|error| answer(&error.into()))
    }

    /// Sends a request as the superuser if the mount may impersonate, else as the session's user.
    pub(crate) fn ask_as_mount<T>(
        &self,
        when: ViewTime,
        call: impl FnOnce(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        self.ask_as_mount_noting(when, None, call)
    }

    /// The same, asking for the right to cache the answer.
    pub(crate) fn ask_as_mount_noting<T>(
        &self,
        when: ViewTime,
        asking: Option<&GrantRequest>,
        call: impl FnOnce(&Fs) -> Result<T, frieze_client::Error>,
    ) -> Result<T, Errno> {
        let fs = self.view(when);
        let fs = if self.impersonates { fs.as_caller(Caller::root()) } else { fs };
        let fs = asking.map_or(fs.clone(), |asking| fs.leasing(asking.granted.clone()));
        call(&fs).map_err(|error| answer(&error.into()))
    }

    pub(crate) fn view(&self, when: ViewTime) -> Fs {
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
