//! Permissions and access lists: `acl.proto`.

#[derive(Clone, PartialEq, prost::Message)]
pub struct FsPermission {
    #[prost(uint32, required, tag = "1")]
    pub perm: u32,
}

/// The same in `FsPermission` for clients of Hadoop 2.
pub const ACL_BIT: u32 = 1 << 12;

/// `AclEntry`, of an access list or a default list.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AclEntry {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    #[prost(int32, required, tag = "2")]
    pub scope: i32,
    #[prost(int32, required, tag = "3")]
    pub permissions: i32,
    #[prost(string, optional, tag = "4")]
    pub name: Option<String>,
}

/// `AclEntry::kind`.
pub mod acl_type {
    pub const USER: i32 = 0;
    pub const GROUP: i32 = 1;
    pub const MASK: i32 = 2;
    pub const OTHER: i32 = 3;
}

/// `AclEntry::scope`.
pub mod acl_scope {
    pub const ACCESS: i32 = 0;
    pub const DEFAULT: i32 = 1;
}

/// `modifyAclEntries`, `removeAclEntries`, `setAcl`, and without entries `removeAcl` and `removeDefaultAcl`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AclRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, repeated, tag = "2")]
    pub entries: Vec<AclEntry>,
}

/// `AclStatus`: what `getAclStatus` answers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AclStatus {
    #[prost(string, required, tag = "1")]
    pub owner: String,
    #[prost(string, required, tag = "2")]
    pub group: String,
    #[prost(bool, required, tag = "3")]
    pub sticky: bool,
    #[prost(message, repeated, tag = "4")]
    pub entries: Vec<AclEntry>,
    #[prost(message, optional, tag = "5")]
    pub permission: Option<FsPermission>,
}

/// See [`AclStatus`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetAclStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub result: Option<AclStatus>,
}
