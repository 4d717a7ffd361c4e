//! One server over a simulated disk and clock, without threads or sockets.
//!
//! [`SimMachine`] is what outlives a server: disk, store, clock. [`TestServer`] is a server on it, and the only place
//! of the tests that calls the parts of a real one. [`TestConnection`] sends it requests as a connection does.

mod calls;
mod connection;
mod machine;
mod retention;

use std::sync::Arc;
use std::time::Duration;

use frieze_base::{ChainId, ClusterId, Fault, InodeId, LogIndex, MonoTime, NodeId, SessionId};
use frieze_cluster::{ClusterChange, ClusterState, Decision};
use frieze_hlc::Hlc;
use frieze_node::{
    ChainEnd, Checkup, Conn, Joining, MetalogStatus, PackLimits, Peers, ReceivedPayload, Responder, Scratch, Seams,
    ServerParts, Settings,
};
use frieze_wire::chain::Configuration;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{ReplicaStatus, RequestBody};
use frieze_wire::peer::ServerMessage;

pub use calls::SessionPlace;
pub use connection::{ReplyAndPayload, ReplyLog, TestConnection};
pub use machine::{SimMachine, test_settings};

/// A server without threads: each method does at once what a thread of a real server does at its time.
#[derive(Clone)]
pub struct TestServer(Arc<ServerParts>);

/// The session that wrote what left the index of a file, if it is known, and first and last stamp of that.
pub type FileLoss = (Option<SessionId>, Hlc, Hlc);

impl TestServer {
    /// Starts a server over these parts.
    ///
    /// # Errors
    /// As a start of the real server: the directory is refused, or the disk fails.
    pub fn open(settings: Settings, seams: Seams) -> Result<TestServer, Fault> {
        ServerParts::open(settings, seams).map(TestServer::of)
    }

    /// Starts a server over an empty directory, which becomes a member of a cluster.
    ///
    /// # Errors
    /// As for `open`.
    pub fn join(settings: Settings, seams: Seams, joining: &Joining) -> Result<TestServer, Fault> {
        ServerParts::join(settings, seams, joining).map(TestServer::of)
    }

    fn of(parts: ServerParts) -> TestServer {
        TestServer(Arc::new(parts))
    }

    /// Virtual microseconds until a restarted server may stamp changes.
    pub fn restart_wait_us(&self) -> u64 {
        self.0.restart_wait_us()
    }

    /// Handles one request as the thread of a connection does; the answer goes to `responder`, now or later.
    pub fn handle(
        &self,
        conn: &Conn,
        header: &FrameHeader,
        body: RequestBody,
        payload: ReceivedPayload<'_>,
        responder: &Arc<dyn Responder>,
        scratch: &mut Scratch,
    ) {
        self.0.handle(conn, header, body, payload, responder, scratch);
    }

    /// A connection is closed.
    pub fn disconnected(&self, conn: &Conn) {
        self.0.service.sessions.disconnected(conn);
    }

    /// Handles one message of server `from`.
    ///
    /// # Errors
    /// As for a real connection of a peer, which drops the message.
    pub fn receive(
        &self,
        from: NodeId,
        header: &FrameHeader,
        message: ServerMessage,
        payload: ReceivedPayload<'_>,
    ) -> Result<(), Fault> {
        self.0.on_peer_message(from, header, message, payload)
    }

    /// Sets the way to the other servers. Once, before the first message.
    pub fn connect(&self, peers: Arc<dyn Peers>) {
        self.0.connect(peers);
    }

    /// Sets a function to be called while the server waits for other servers.
    pub fn while_waiting(&self, idle: Box<dyn Fn() + Send + Sync>) {
        self.0.while_waiting(idle);
    }

    /// Ends the waits of requests for other servers: the process is about to stop.
    pub fn end_waits(&self) {
        self.0.end_waits();
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// The disk's: the server is read-only from now on.
    pub fn flush(&self) -> Result<(), Fault> {
        self.0.planes.flush()
    }

    /// Writes a checkpoint of the names, and flushes until its tables are complete. False if the newest is of now.
    ///
    /// # Errors
    /// The disk's: there is no checkpoint.
    pub fn checkpoint(&self) -> Result<bool, Fault> {
        self.0.planes.meta.checkpoint(&mut || self.0.planes.flush().is_ok())
    }

    /// Answers requests that waited for what other servers have flushed by now.
    pub fn reply_durable(&self) {
        self.0.planes.reply_durable();
    }

    /// True if something waits for a flush.
    pub fn is_dirty(&self) -> bool {
        self.0.planes.is_dirty()
    }

    /// Writes what the journal of the metalog has to write.
    ///
    /// # Errors
    /// The disk's.
    pub fn journal(&self, timeout: Duration) -> Result<(), Fault> {
        self.0.journal(timeout)
    }

    /// Maintains clocks and sessions: twice a second in a real server.
    ///
    /// # Errors
    /// The disk's.
    pub fn tend(&self) -> Result<(), Fault> {
        self.0.tend()
    }

    /// Flushes everything and records a clean stop. The server must not be used afterwards.
    ///
    /// # Errors
    /// The disk's.
    pub fn stop(&self) -> Result<(), Fault> {
        self.0.stop()
    }

    /// The newest stamp of the clock.
    pub fn newest(&self) -> Hlc {
        self.0.planes.newest()
    }

    /// The cluster's identity.
    pub fn cluster(&self) -> ClusterId {
        self.0.planes.cluster()
    }

    /// What the start has to report to an operator.
    pub fn notes(&self) -> &[String] {
        self.0.notes()
    }

    /// Repairs since the start, a line each.
    pub fn repairs(&self) -> Vec<String> {
        self.0.service.upkeep.mended()
    }

    /// Checks everything, as `frieze fsck` does.
    pub fn check_up(&self) -> Checkup {
        self.0.check_up()
    }

    /// Scrubs until done, or until `pause` returns false.
    ///
    /// # Errors
    /// The disk's.
    pub fn scrub(&self, pause: &dyn Fn(Duration) -> bool) -> Result<(), Fault> {
        self.0.service.upkeep.scrub(pause)
    }

    /// Frees the space of expired history.
    ///
    /// # Errors
    /// The disk's.
    pub fn reclaim(&self) -> Result<(), Fault> {
        self.0.service.upkeep.reclaim()
    }

    /// Raises the marks of retention that are due, and frees what they let go.
    ///
    /// # Errors
    /// The disk's.
    pub fn thin(&self) -> Result<(), Fault> {
        self.reclaim()?;
        while self.0.service.upkeep.thin()? {}
        Ok(())
    }

    /// Looks which policy would free a full disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn advise_on_space(&self) -> Result<(), Fault> {
        self.0.planes.advise_on_space(&|| true)
    }

    /// Does a step of counting what is kept of trees.
    ///
    /// # Errors
    /// The disk's.
    pub fn count_kept(&self) -> Result<(), Fault> {
        self.0.service.upkeep.files.count_kept()
    }

    /// Bytes that are kept of a tree, as last counted.
    pub fn kept_bytes(&self, root: InodeId) -> Option<u64> {
        self.0.planes.kept.of(root)
    }

    /// Packs all old records that marks of retention let go something of, and gives back what was packed before.
    /// Returns the bytes freed.
    ///
    /// # Errors
    /// The disk's; `Corrupt` for a damaged record.
    pub fn pack(&self) -> Result<u64, Fault> {
        self.pack_with_readers(0)
    }

    /// As [`TestServer::pack`]; what was packed keeps its former place for `readers_ns`.
    ///
    /// # Errors
    /// As [`TestServer::pack`].
    pub fn pack_with_readers(&self, readers_ns: u64) -> Result<u64, Fault> {
        let limits = PackLimits { least_bytes: 1, dead_part: 1 << 40, readers_ns };
        self.0.planes.pack(limits, &mut |_| true)
    }

    /// When records of a file were written that left the index, by session.
    ///
    /// # Errors
    /// The disk's.
    pub fn losses(&self, inode: InodeId) -> Result<Vec<FileLoss>, Fault> {
        let dropped = self.0.planes.data.device().log_of([inode])?.dropped_records(inode, Hlc::ZERO, Hlc::MAX);
        Ok(dropped
            .into_iter()
            .map(|dropped| (dropped.by.map(|(session, _)| session), dropped.first, dropped.last))
            .collect())
    }

    /// Packs in use.
    pub fn packs(&self) -> usize {
        self.0.planes.data.device().log().packs().count()
    }

    /// Bytes of dead records, and those of them that are not freed yet.
    pub fn dead_bytes(&self) -> (u64, u64) {
        self.0.planes.gc.bytes()
    }

    /// Makes one image of metadata, if one is due; true if one was made.
    ///
    /// # Errors
    /// The disk's.
    pub fn image(&self, pause: &dyn Fn(Duration) -> bool) -> Result<bool, Fault> {
        self.0.service.upkeep.image(pause)
    }

    /// Sorts the records of one closed segment into a shelf; true if there was one.
    ///
    /// # Errors
    /// The disk's.
    pub fn shelve(&self) -> Result<bool, Fault> {
        self.0.service.upkeep.shelve()
    }

    /// Sorts the records of every closed segment into shelves.
    pub fn shelve_all(&self) {
        while self.0.service.upkeep.shelve().unwrap() {}
    }

    /// Closes the segment that is written to.
    pub fn close_segment(&self) {
        self.0.service.planes.close_segment();
    }

    /// Evicts from memory what is over the limit.
    ///
    /// # Errors
    /// The disk's.
    pub fn keep_to_memory(&self) -> Result<(), Fault> {
        self.0.service.upkeep.keep_to_memory()
    }

    /// Number of cache leases granted and not expired.
    pub fn cache_leases(&self) -> usize {
        self.0.service.sessions.grants()
    }

    /// Number of sessions with state here.
    pub fn sessions_remembered(&self) -> usize {
        self.0.service.sessions.sessions_remembered()
    }

    /// Sets the configurations of chains.
    ///
    /// # Errors
    /// The disk's.
    pub fn configure(&self, chains: &[(ChainId, Configuration)]) -> Result<(), Fault> {
        self.0.configure(chains)
    }

    /// Sets the end of the server's lease.
    pub fn renew_lease(&self, until: MonoTime) {
        self.0.renew_lease(until);
    }

    /// Runs the timers of the chains.
    pub fn tick_chains(&self) {
        self.0.tick_chains();
    }

    /// Status of the chains of which this server is a member.
    pub fn chains(&self) -> Vec<ReplicaStatus> {
        self.0.planes.chains()
    }

    /// Where the log of each chain ends here.
    pub fn chain_ends(&self) -> Vec<ChainEnd> {
        self.0.planes.chain_ends()
    }

    /// Answers the questions of other servers.
    pub fn answer_peers(&self) {
        self.0.service.files.answer_what_is_asked();
    }

    /// Founds a metalog whose only member is this server. False if it is a member already.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn found_metalog(&self) -> Result<bool, Fault> {
        self.0.found_metalog()
    }

    /// Adds a member that does not vote.
    ///
    /// # Errors
    /// This server does not lead, or another change is on its way.
    pub fn add_member(&self, node: NodeId) -> Result<(), Fault> {
        self.0.add_member(node)
    }

    /// A member that does not vote becomes a voter.
    ///
    /// # Errors
    /// As for `add_member`, and if it has not caught up.
    pub fn promote_member(&self, node: NodeId) -> Result<(), Fault> {
        self.0.promote_member(node)
    }

    /// Removes a member.
    ///
    /// # Errors
    /// As for `add_member`.
    pub fn remove_member(&self, node: NodeId) -> Result<(), Fault> {
        self.0.remove_member(node)
    }

    /// Hands leadership over.
    ///
    /// # Errors
    /// This server does not lead.
    pub fn hand_over(&self, to: NodeId) -> Result<(), Fault> {
        self.0.hand_over(to)
    }

    /// Runs the timers of the metalog.
    pub fn beat(&self) {
        let _ = self.0.beat();
    }

    /// Status of the metalog, if there is one.
    pub fn metalog(&self) -> Option<MetalogStatus> {
        self.0.metalog()
    }

    /// Waits until this server has executed everything that was answered before.
    ///
    /// # Errors
    /// No majority answers.
    pub fn linearizable(&self) -> Result<(), Fault> {
        self.0.linearizable()
    }

    /// Place in the log and digest of all metadata executed so far.
    ///
    /// # Errors
    /// The store's.
    pub fn digest(&self) -> Result<(LogIndex, u64), Fault> {
        self.0.digest()
    }

    /// Proposes decisions of the controller, if this server leads in `term`.
    pub fn decide(&self, term: u64, decisions: &[Decision]) {
        self.0.decide(term, decisions);
    }

    /// Shows the state of the cluster.
    pub fn look_at_control(&self, look: &mut dyn FnMut(&ClusterState)) {
        self.0.look_at_control(look);
    }

    /// Changes of the cluster since the last call.
    pub fn take_control_news(&self) -> Vec<ClusterChange> {
        self.0.take_control_news()
    }

    /// Drops the records that no chain needs of this server any more, as the leader allows.
    ///
    /// # Errors
    /// The disk's.
    pub fn drop_remains(&self) -> Result<(), Fault> {
        self.0.service.upkeep.drop_remains()
    }

    /// Frees the space of dropped records.
    ///
    /// # Errors
    /// The disk's.
    pub fn give_back_remains(&self) -> Result<(), Fault> {
        self.0.service.upkeep.give_back_remains()
    }
}
