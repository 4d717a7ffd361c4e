//! `cluster add-device`: one more disk of this machine, with a server of its own.

use anyhow::{Result, anyhow};
use frieze_client::{ClusterNodeStatus, ClusterReply, ServerAddr, host_name};

use crate::args::{AddDeviceArgs, ServeArgs};
use crate::run::CommandRun;
use crate::serve;

/// The default port of a server.
const PORT: u16 = 7470;

/// `frieze cluster add-device`.
pub(crate) fn add(run: &mut CommandRun, args: &AddDeviceArgs) -> Result<()> {
    // Before the client makes its threads.
    serve::stop_signals().thread_block()?;
    let asked = run.options()?.server;
    let reply = run.client()?.cluster(None)?;
    let serve = server_of(args, &asked, &reply, &host_name())?;
    run.say(&format!(
        "serving {} as {} at {}",
        args.dir.display(),
        serve.name.as_deref().unwrap_or_default(),
        serve.listen.join(" ")
    ));
    serve::serve(run, &serve)
}

/// The server of one more disk of this machine, in the cluster of the answering server, or in a new one with it.
fn server_of(args: &AddDeviceArgs, asked: &ServerAddr, reply: &ClusterReply, host: &str) -> Result<ServeArgs> {
    let dir = args.dir.file_name().map(|name| name.to_string_lossy().replace(char::is_whitespace, "-"));
    let name = args.name.clone().unwrap_or_else(|| format!("{host}-{}", dir.unwrap_or_else(|| "disk".to_owned())));
    let is_itself = |node: &&ClusterNodeStatus| node.name == name;
    let here = || reply.nodes.iter().filter(|node| node.machine == host && !is_itself(node));
    let neighbour = here().find_map(|node| node.address.parse().ok()).unwrap_or_else(|| asked.clone());
    let listen = match (&args.listen, reply.nodes.iter().find(is_itself)) {
        (Some(listen), _) => listen.clone(),
        // Where it was before.
        (None, Some(before)) => before.address.clone(),
        (None, None) => next_port(&neighbour, reply)?,
    };
    let others = reply.nodes.iter().filter(|node| !is_itself(node)).map(|node| node.address.clone());
    let mut join: Vec<String> = others.collect();
    if join.is_empty() {
        join.push(asked.to_string());
    }
    Ok(ServeArgs {
        dir: args.dir.clone(),
        listen: vec![listen],
        join: Some(join.join(",")),
        name: Some(name.clone()),
        site: here().map(|node| node.site.clone()).find(|site| !site.is_empty()),
        machine: Some(host.to_owned()),
        advertise: None,
        metrics: None,
        hdfs: None,
        hdfs_data: None,
        hdfs_trust_names: false,
        webhdfs: None,
        console: None,
        console_public: false,
        config: args.config.clone(),
        memory: args.memory,
        index_memory: None,
        names_memory: None,
        image_space: None,
        image_pieces: None,
    })
}

/// Beside `neighbour`, at the port above those that the servers of its host have.
fn next_port(neighbour: &ServerAddr, reply: &ClusterReply) -> Result<String> {
    let ServerAddr::Tcp { host, port } = neighbour else {
        return Ok(ServerAddr::Tcp { host: "127.0.0.1".to_owned(), port: PORT + 1 }.to_string());
    };
    let of_host = |node: &ClusterNodeStatus| match node.address.parse() {
        Ok(ServerAddr::Tcp { host: other, port }) if other == *host => Some(port),
        _ => None,
    };
    let highest = reply.nodes.iter().filter_map(of_host).chain([*port]).max().unwrap_or(PORT);
    let port =
        highest.checked_add(1).ok_or_else(|| anyhow!("no port is left above {highest}: name one with --listen"))?;
    Ok(ServerAddr::Tcp { host: host.clone(), port }.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, machine: &str, address: &str) -> ClusterNodeStatus {
        let (name, machine, address) = (name.to_owned(), machine.to_owned(), address.to_owned());
        ClusterNodeStatus { name, machine, address, site: "east".to_owned(), ..ClusterNodeStatus::default() }
    }

    fn asked(dir: &str) -> AddDeviceArgs {
        AddDeviceArgs { dir: dir.into(), listen: None, name: None, memory: None, config: None }
    }

    #[test]
    fn the_server_of_a_disk_stands_beside_those_of_its_machine() {
        let reply = ClusterReply {
            nodes: vec![node("db1", "db1", "db1:7470"), node("db2", "db2", "db2:7470"), node("x", "db2", "db2:7480")],
            ..ClusterReply::default()
        };
        let at = "db1:7470".parse().expect("an address");
        let serve = server_of(&asked("/disk 2/frieze"), &at, &reply, "db2").expect("it can be");
        assert_eq!(serve.listen, ["db2:7481"]);
        assert_eq!(serve.join.as_deref(), Some("db1:7470,db2:7470,db2:7480"));
        assert_eq!((serve.name.as_deref(), serve.machine.as_deref()), (Some("db2-frieze"), Some("db2")));
        assert_eq!(serve.site.as_deref(), Some("east"));
        // Started again it is where it was.
        let mut again = reply.clone();
        again.nodes.push(node("db2-frieze", "db2", "db2:7481"));
        let serve = server_of(&asked("/disk2/frieze"), &at, &again, "db2").expect("it can be");
        assert_eq!(serve.listen, ["db2:7481"]);
        assert_eq!(serve.join.as_deref(), Some("db1:7470,db2:7470,db2:7480"));
    }

    #[test]
    fn a_server_that_is_alone_is_joined_where_it_was_asked() {
        let at = "127.0.0.1:7000".parse().expect("an address");
        let serve = server_of(&asked("/"), &at, &ClusterReply::default(), "box").expect("it can be");
        assert_eq!((serve.listen, serve.join.as_deref()), (vec!["127.0.0.1:7001".to_owned()], Some("127.0.0.1:7000")));
        assert_eq!(serve.name.as_deref(), Some("box-disk"));
        let last = "127.0.0.1:65535".parse().expect("an address");
        assert!(server_of(&asked("/d"), &last, &ClusterReply::default(), "box").is_err());
    }
}
