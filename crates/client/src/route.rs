//! Which server a request goes to.

use frieze_base::ChunkId;
use frieze_wire::message::Request;

/// The server that is to answer a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServerRoute {
    /// Names, sessions, locks: the leader.
    #[default]
    Lead,
    /// Requests that every server can answer, above all those at an instant of the past: the leader, which is never
    /// behind, else any server that answers.
    Any,
    /// A write to this chunk: the head of its chain.
    Write(ChunkId),
    /// A read of this chunk: any server of its chain.
    Read(ChunkId),
    /// The state of one server: the one that the options name, whichever server leads.
    Named,
}

impl ServerRoute {
    /// The route of a request that is about no chunk.
    pub(crate) fn of(request: &Request) -> ServerRoute {
        let is_past = match request {
            Request::Stat(stat) => stat.view.at.is_some() || stat.recent,
            Request::List(list) => list.view.at.is_some(),
            Request::ReadLink(link) => link.view.at.is_some(),
            Request::Access(access) => access.view.at.is_some(),
            Request::GetXattr(xattr) => xattr.view.at.is_some(),
            Request::Open(open) => open.view.at.is_some(),
            Request::Story(story) => story.view.at.is_some(),
            Request::Deleted(deleted) => deleted.view.at.is_some(),
            Request::Log(log) => log.is_past(),
            // Two instants; the time and the named instants; the map of the cluster.
            Request::Diff(_) | Request::Now(_) | Request::Snapshots(_) | Request::ClusterMap(_) => true,
            _ => false,
        };
        if is_past { ServerRoute::Any } else { ServerRoute::Lead }
    }
}
