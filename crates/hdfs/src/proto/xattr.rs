//! Extended attributes: `xattr.proto`.

#[derive(Clone, PartialEq, prost::Message)]
pub struct XAttr {
    #[prost(int32, required, tag = "1")]
    pub namespace: i32,
    #[prost(string, required, tag = "2")]
    pub name: String,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
}

/// `XAttr::namespace`.
pub mod xattr_namespace {
    pub const USER: i32 = 0;
    pub const TRUSTED: i32 = 1;
    pub const SECURITY: i32 = 2;
}

/// `SetXAttrRequest::flag`.
pub mod xattr_flag {
    pub const CREATE: u32 = 1;
    pub const REPLACE: u32 = 2;
}

/// `setXAttr` and, without a flag, `removeXAttr`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetXAttrRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, optional, tag = "2")]
    pub xattr: Option<XAttr>,
    #[prost(uint32, optional, tag = "3")]
    pub flag: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct XAttrsRequest {
    #[prost(string, required, tag = "1")]
    pub src: String,
    #[prost(message, repeated, tag = "2")]
    pub xattrs: Vec<XAttr>,
}

/// The answer to `getXAttrs` and `listXAttrs`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct XAttrsResponse {
    #[prost(message, repeated, tag = "1")]
    pub xattrs: Vec<XAttr>,
}
