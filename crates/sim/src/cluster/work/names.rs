//! Names: made, renamed, removed and listed.

use frieze_base::{Fault, NodeId, Reason, Seq};
use frieze_hlc::Hlc;
use frieze_wire::message::{List, Reply, Request, View};
use frieze_wire::txn::{Make, MakeKind, Op, Remove, Rename, Target};

use super::super::client::Route;
use super::super::history::{ListRecord, NameOp, NameRecord};
use super::Worker;

impl Worker {
    pub(in crate::cluster) fn names(
        &mut self,
        view: View,
        route: Route,
    ) -> Result<Option<(Vec<String>, NodeId)>, Fault> {
        let list = List { target: Target::path("/names"), view, count_max: 10_000, ..List::default() };
        match self.client.call(route, &Request::List(list), &[], Seq(0)) {
            Ok((Reply::List(reply), _, node)) => {
                let names = reply.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned());
                Ok(Some((names.collect(), node)))
            }
            Ok(_) => Err(Reason::BadFrame.into()),
            Err(fault) if fault.reason == Reason::Future => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    pub(in crate::cluster) fn list_at(&mut self, at: Hlc, node: NodeId) -> Result<(), Fault> {
        if let Some((names, node)) = self.names(View { at: Some(at.0), user_at: None }, Route::At(node))? {
            self.history().remember_names(at, names, node);
        }
        Ok(())
    }

    pub(in crate::cluster) fn list(&mut self) -> Result<(), Fault> {
        let invoked_us = self.client.now_us();
        if let Some((names, node)) = self.names(View::default(), Route::Lead)? {
            let done_us = self.client.now_us();
            let mut history = self.history();
            history.present.clone_from(&names);
            history.lists.push(ListRecord { names, invoked_us, done_us, node });
        }
        Ok(())
    }

    pub(in crate::cluster) fn change_names(&mut self) -> Result<(), Fault> {
        if self.client.rng.chance(4) {
            return self.list();
        }
        let present = self.history().present.clone();
        let op = match self.client.rng.below(4) {
            0 if !present.is_empty() => NameOp::Remove { name: self.client.rng.choose(&present).clone() },
            1 if !present.is_empty() => {
                NameOp::Rename { from: self.client.rng.choose(&present).clone(), to: self.fresh_name() }
            }
            _ => NameOp::Make { name: self.fresh_name() },
        };
        let path = |name: &str| Target::path(format!("/names/{name}"));
        let asked = match &op {
            NameOp::Make { name } => {
                let kind = Some(MakeKind::File(false));
                Op::Make(Make { target: path(name), mode: 0o644, or_open: false, kind, ..Make::default() })
            }
            NameOp::Rename { from, to } => Op::Rename(Rename { from: path(from), to: path(to), flags: 0 }),
            NameOp::Remove { name } => Op::Remove(Remove { target: path(name), directory: false }),
        };
        let sync = self.client.rng.chance(self.mix.sync_one_in);
        let record = NameRecord {
            op: op.clone(),
            invoked_us: self.client.now_us(),
            newest_before: self.client.newest,
            sync,
            done: None,
        };
        let place = {
            let mut history = self.history();
            history.names.push(record);
            history.names.len() - 1
        };
        let outcome = match self.client.change(asked, sync) {
            Ok(reply) => Ok(Hlc(reply.stamp)),
            Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::Exists) => Err(()),
            Err(fault) => return Err(fault),
        };
        let done_us = self.client.now_us();
        let mut history = self.history();
        history.names[place].done = Some((done_us, outcome));
        if let Ok(stamp) = outcome {
            history.instants.push(stamp);
            history.instants.push(stamp.previous());
            let (made, removed) = match op {
                NameOp::Make { name } => (Some(name), None),
                NameOp::Rename { from, to } => (Some(to), Some(from)),
                NameOp::Remove { name } => (None, Some(name)),
            };
            history.present.retain(|name| Some(name) != removed.as_ref());
            history.present.extend(made);
        }
        Ok(())
    }

    fn fresh_name(&self) -> String {
        format!("n{}", self.history().fresh_value())
    }
}
