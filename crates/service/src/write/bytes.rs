//! Writes of bytes: the checks, and where the bytes go.
//!
//! Guarantees: nothing is written without a grant that is in force when the write is ordered. Leaves to others: order,
//! stamps and deduplication (`frieze_replication`); the end of a file that others extend (`append`).

use std::collections::BTreeSet;
use std::sync::Arc;

use frieze_base::{ChainId, Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_net::ReceivedPayload;
use frieze_planes::{FileVersion, Principal, RemoteReach, chains_of_extent, spread_of};
use frieze_replication::{Content, WriteAsk, WriteCallback as Answer, WritePlace, WriteResult, in_one_record, split};
use frieze_wire::frame::{FrameHeader, PAYLOAD_BYTES_MAX};
use frieze_wire::message::{Durability as When, FileKind, Reply, Write, WriteReply};

use crate::session::capability::Presenter;
use crate::session::responder::Responder;
use crate::session::scratch::Scratch;
use crate::session::write_context::{WriteContext, WriteContexts};
use crate::write::{Writers, check_granted, check_numbered, check_writable, no_grant};

impl Writers {
    pub(crate) fn write(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        ask: &Write,
        payload: ReceivedPayload<'_>,
        responder: &Arc<dyn Responder>,
        scratch: &mut Scratch,
    ) {
        let request = *header;
        let reply_to = responder.clone();
        let reply = Box::new(move |result: Result<WriteResult, Fault>| {
            let result =
                result.map(|WriteResult { stamp, offset, .. }| Reply::Write(WriteReply { stamp: stamp.0, offset }));
            reply_to.respond(&request, result, &[], 0);
        });
        if let Err((reply, fault)) = self.try_write(principal, header, ask, payload, scratch, reply) {
            reply(Err(fault));
        }
        if when_of(ask) == When::Sync {
            self.planes.durability.hurry();
        }
    }

    /// An early refusal returns the reply to the caller.
    fn try_write(
        &self,
        principal: &Principal,
        header: &FrameHeader,
        ask: &Write,
        payload: ReceivedPayload<'_>,
        scratch: &mut Scratch,
        reply: Answer,
    ) -> Result<(), (Answer, Fault)> {
        macro_rules! check {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(fault) => return Err((reply, fault)),
                }
            };
        }
        check!(self.planes.check_changeable());
        check!(check_numbered(header));
        let capability = check!(self.sessions.mint.open_shown(
            &ask.capability,
            Presenter::of_any(header.session, principal.uid),
            &mut scratch.shown
        ));
        check!(check_writable(&capability));
        if payload.is_empty() || payload.len() > PAYLOAD_BYTES_MAX as usize {
            return Err((
                reply,
                Fault::new(
                    Reason::InvalidArgument,
                    format!("a write of {} bytes; 1 to {PAYLOAD_BYTES_MAX} at once", payload.len()),
                ),
            ));
        }
        let id = capability.inode;
        let range = (ask.offset, payload.len() as u64);
        let (context, chains) =
            check!(self.context(id, header.session, range, ask.append, &mut scratch.write_contexts));
        let WriteContext { target, layout, plugin, .. } = &*context;
        let layout = *layout;
        if target.kind != FileKind::File {
            return Err((reply, Reason::InvalidArgument.into()));
        }
        let rows = plugin.as_ref().filter(|plugin| plugin.has_rows());
        let record_time = match plugin.as_ref().filter(|plugin| !plugin.has_rows()) {
            Some(plugin) => Some(check!(plugin.user_time(&payload).map_err(|fault| at_offset(fault, ask, id)))),
            None => None,
        };
        check!(self.planes.hold_back());
        if let Err(fault) = self.planes.admit(&context.bounds, payload.len() as u64)
            && !self.planes.data.has_record(header.session, header.seq)
        {
            return Err((reply, fault));
        }
        let at_end = (ask.append && self.planes.data.is_shared())
            .then(|| layout.chain(u32::try_from(ask.offset / layout.chunk_bytes).unwrap_or(u32::MAX)));
        if let Some(inode) = &target.timed {
            // Times in a file only increase: all of its times are compared.
            check!(self.check_times_here(id, inode));
        }
        let turns = self.planes.data.membership_count();
        // Asked before other writes wait for this one. Writes on other servers from now on are concurrent with it.
        let remote = match (ask.append, at_end) {
            (true, Some(chain)) => match self.remote_end(id, chain) {
                // A retry gets the stored result, wherever the file ends by now.
                Err(_) if self.planes.data.has_record(header.session, header.seq) => RemoteReach::default(),
                remote => check!(remote),
            },
            _ => RemoteReach::default(),
        };
        if ask.append {
            // A record needs the right to its own chunk; it may reach over the end of that chunk.
            let reach = if at_end.is_some() { (0, true) } else { (payload.len() as u64, false) };
            if let Err(fault) = self.grant_tail(principal, header.session, id, reach, &remote)
                && !(at_end.is_some() && self.planes.data.has_record(header.session, header.seq))
            {
                let request = (header.session, header.seq);
                let fault = match at_end {
                    Some(chain) => self.planes.data.refuse_append(chain, request, header.acked, fault),
                    None => fault,
                };
                return Err((reply, fault));
            }
        }
        let place = || {
            self.files.check_caught_up(&chains)?;
            let (offset, above, inode) = match (ask.append, at_end) {
                (true, Some(chain)) => {
                    let mut seen = FileVersion::at(id, self.planes.meta.writable_inode(id)?, None);
                    let (offset, above) = self.files.append_end(&mut seen, chain, &remote)?;
                    // If this server left a chain since the remote ends were collected, no member of that chain was
                    // asked. Without a lease the chain may have another head, so the file may be longer.
                    self.planes.data.check_lease_and_membership(turns)?;
                    (offset, above, Some(seen.inode))
                }
                (true, None) => {
                    let seen = FileVersion::at(id, self.planes.meta.writable_inode(id)?, Some(Hlc::MAX));
                    let offset = self.files.look_with(&[&seen], &[], remote.clone())?.extent(&seen).size;
                    (offset, Hlc::ZERO, Some(seen.inode))
                }
                (false, _) => (ask.offset, Hlc::ZERO, None),
            };
            let spread = match at_end {
                Some(_) => in_one_record(offset, payload.len(), layout),
                None => split(offset, payload.len(), layout),
            };
            let parts = spread.as_ref().map_or(&[][..], |spread| &spread.parts);
            let chunks = || parts.iter().map(|part| part.chunk);
            // The end of the file was computed from this version, and so is the right to write there.
            let of_version =
                inode.as_ref().map(|inode| self.planes.meta.missing_grant(inode, header.session, chunks()));
            let changed = match self.planes.meta.change_count() == target.change_count {
                true => None,
                false => Some(self.planes.meta.write_target(id, header.session)?),
            };
            let target = changed.as_ref().unwrap_or(target);
            let missing = of_version.unwrap_or_else(|| target.missing_grant(chunks()));
            let spread = spread?;
            check_granted(id, header.session, missing)?;
            if let (Some(chain_end), Some(inode)) = (spread.parts.first().filter(|_| at_end.is_some()), &inode)
                && offset + payload.len() as u64 > (u64::from(chain_end.chunk) + 1) * layout.chunk_bytes
                && !inode.reaches_over(chain_end.chunk)
            {
                return Err(no_grant(header.session, id, chain_end.chunk));
            }
            let (origin, times_after) = match &inode {
                Some(inode) => (inode.origin(), inode.times_after()),
                None => (target.origin, target.times_after),
            };
            let inherited = self.read.inherited_user_time(id, times_after, origin)?;
            let version = rows.and_then(|plugin| Some((plugin, inode.or_else(|| target.timed.clone())?)));
            let user_time = match version {
                Some((plugin, inode)) => self.read.newest_row(plugin, id, inode, offset, &payload, inherited)?,
                None => record_time,
            };
            Ok(WritePlace { spread, user_time, inherited, times_after, above })
        };
        // A record that its chain kept, and whose grant was lost, is no answer. The client writes under another number.
        let recalled = |WriteResult { offset, end, stamp }| {
            check_granted(id, header.session, self.planes.meta.lost_grant(id, header.session, (offset, end), stamp)?)
        };
        self.planes.data.write(
            WriteAsk {
                session: header.session,
                seq: header.seq,
                acked: header.acked,
                epoch: header.epoch,
                seen: header.hlc,
                inode: id,
                layout,
                known_offset: (!ask.append).then_some(ask.offset),
                at_end,
                place: &place,
                recalled: &recalled,
                content: Content::Bytes(payload, payload.expected(header.payload_crc)),
                uid: capability.opener.unwrap_or(principal.caller.uid),
                durability: when_of(ask),
            },
            reply,
        );
        Ok(())
    }

    /// What a write to a range of a file has to know of it, from `contexts` if nothing has changed since it was looked
    /// up; and the chains of the range, for [`Files::check_caught_up`]. One of several servers then knows the file and
    /// the session's right to write there, though both may be moments old. An append needs the right to the chunk in
    /// which the file is believed to end, over whose end the record may reach. The server also knows what was decided
    /// while another was head: a right may have been revoked, and the length settled without the bytes of this write.
    pub(crate) fn context(
        &self,
        id: InodeId,
        session: SessionId,
        range: (u64, u64),
        appends: bool,
        contexts: &mut WriteContexts,
    ) -> Result<(Arc<WriteContext>, BTreeSet<ChainId>), Fault> {
        let mut context = match contexts.find(session, id, self.planes.meta.change_count()) {
            Some(context) => context,
            None => match self.look_up(id, session) {
                Ok(context) => context,
                Err(_) => {
                    self.planes.meta.linearizable()?;
                    self.look_up(id, session)?
                }
            },
        };
        let chains = chains_of_extent(context.layout, range.0, range.1);
        self.files.catch_up_once(&chains)?;
        // The leader granted every right itself, unless another server leads by now.
        if !self.planes.meta.leads() && !context.target.may_write_range(range, appends) {
            self.planes.meta.linearizable()?;
            context = self.look_up(id, session)?;
        }
        contexts.add(&context);
        Ok((context, chains))
    }

    fn look_up(&self, id: InodeId, session: SessionId) -> Result<Arc<WriteContext>, Fault> {
        let target = self.planes.meta.write_target(id, session)?;
        let plugin = target.timed.as_ref().map(|inode| inode.plugin().parse()).transpose()?;
        let (layout, bounds) = (spread_of(id, target.layout), self.planes.bounds_of(id));
        Ok(Arc::new(WriteContext { session, inode: id, layout, plugin, target, bounds }))
    }
}

/// When a write is to be answered.
fn when_of(ask: &Write) -> When {
    When::try_from(ask.durability).unwrap_or(When::Async)
}

fn at_offset(fault: Fault, ask: &Write, id: InodeId) -> Fault {
    let place = if ask.append { "appended".to_owned() } else { format!("at offset {}", ask.offset) };
    Fault::new(fault.reason, format!("write {place} to inode {id} refused: {}", fault.message))
}
