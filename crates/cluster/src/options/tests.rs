//! Texts of addresses and roles.

use std::path::PathBuf;

use super::*;

#[track_caller]
fn check_address(text: &str, want: Result<LogAddress, &str>) {
    assert_eq!(text.parse(), want.map_err(str::to_owned), "{text}");
}

#[test]
fn a_directory_has_an_absolute_path_and_no_error_repeats_the_text() {
    let expected = "expected kafka://HOST:PORT,HOST:PORT/TOPIC or dir:///PATH";
    check_address("dir:///var/log/topic", Ok(LogAddress::Dir(PathBuf::from("/var/log/topic"))));
    for wrong in ["", "dir://", "dir:///", "dir://relative", "/path", "nats://user:secret@host/x"] {
        check_address(wrong, Err(expected));
    }
}

#[cfg(not(any(feature = "kafka", feature = "kafka-librdkafka")))]
#[test]
fn a_build_without_a_client_of_kafka_says_so() {
    let text = "this build has no client of Kafka's protocol: expected dir:///PATH, or a build with the \
                feature kafka";
    check_address("kafka://user:secret@broker:9092/writes", Err(text));
}

#[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
#[test]
fn an_address_of_kafka_has_brokers_and_a_topic() {
    let address = "kafka://a:9092,b:9092/writes".parse::<LogAddress>();
    assert!(matches!(&address, Ok(LogAddress::Kafka(address)) if address.topic == "writes"), "{address:?}");
    let error = "kafka://user:secret@broker:9092/writes".parse::<LogAddress>().unwrap_err();
    assert!(error.contains("HOST:PORT") && !error.contains("secret"), "{error}");
}

#[test]
fn roles_are_a_list_without_repetitions_and_all_stands_alone() {
    let names = |text: &str| {
        text.parse::<Roles>().map(|roles| roles.list().iter().map(|role| role.name()).collect::<Vec<_>>())
    };
    assert_eq!(names("all"), Ok(vec!["all"]));
    assert_eq!(names("gateway, query"), Ok(vec!["gateway", "query"]));
    let list = "expected all, or a list of gateway, owner, query and store";
    assert_eq!(names("gatway"), Err(format!("unknown role \"gatway\", {list}")));
    assert_eq!(names(""), Err(format!("unknown role \"\", {list}")));
    assert_eq!(names("owner,owner"), Err("role owner is given twice".to_owned()));
    assert_eq!(names("all,gateway"), Err(format!("all excludes other roles, {list}")));
    assert!(Roles::default().is_all() && !Roles::default().has(Role::Gateway));
    let both = "gateway,owner".parse::<Roles>().expect("roles");
    assert!(both.has(Role::Gateway) && both.has(Role::Owner) && !both.has(Role::Query) && !both.is_all());
}

#[test]
fn the_number_at_the_end_of_a_host_name_is_a_partition() {
    let auto = |host: &str| PartitionChoice::Auto.number(host);
    assert_eq!(auto("chronolith-owner-12\n"), Some(12));
    assert_eq!(auto("owner-0.owners.metrics.svc.cluster.local"), Some(0));
    assert_eq!(auto("owner007"), Some(7));
    for wrong in ["", "owner", "owner-", "12a", "owner-10000", "owner-99999999999", "owner.12"] {
        assert_eq!(auto(wrong), None, "{wrong}");
    }
    assert_eq!(PartitionChoice::Number(3).number("owner-1"), Some(3));
}

#[test]
fn owners_divide_limits_of_series_among_the_partitions_of_a_tenant() {
    let options =
        GatewayOptions { tenant_partitions_min: 2, partition_series: 1000, ..GatewayOptions::default() };
    let series_max = |series_max: usize, of_database: usize, accepting_count: usize| {
        let databases = DatabaseLimits { series_max: of_database, ..DatabaseLimits::default() };
        let limits = TenantLimits { series_max, databases, ..TenantLimits::default() };
        let limits = options.partition_limits(limits, accepting_count);
        (limits.series_max, limits.databases.series_max)
    };
    assert_eq!(series_max(100, 0, 1), (100, 0), "there is one partition");
    assert_eq!(series_max(100, 40, 8), (55, 22));
    assert_eq!(series_max(4000, 0, 8), (1100, 0));
    assert_eq!(series_max(40_000, 0, 8), (5500, 0), "all partitions");
}
