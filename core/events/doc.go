// Package events is the node's journal of what happened on it: events of reeve.node.v1, as operators read them with `reeve events`.
//
// It owns data/events.jsonl and data/events.jsonl.1. A file begins with a line that names the version of the format; every other line is one event as
// protojson writes it. When the file would become larger than 4 MiB it is renamed to events.jsonl.1,
// in place of the one before, so that the last 4 to 8 MiB of events are kept: some tens of thousands.
//
// Recording an event puts it into memory and returns; Run writes what has gathered there since the last write as one group, with one fsync. While the disk is
// full or stuck, the newest 1024 events (at most 1 MiB of them) wait in memory beside the group that is being written, the oldest beyond that are dropped, and one
// EventsDropped says how many when the disk takes events again. Events that wait can be read already, once this core has written for the first time.
//
// Sequence numbers are never used twice. Nobody is shown an event whose number is more than 1024 beyond what is on disk, so every core goes on 1025 after the
// last event that it finds.
//
// What cannot be read in the files is skipped and counted. It never keeps a node from starting.
//
// Relay keeps the newest events while the volume, and so the journal, is not open.
//
// Follow watches what no other room records: the membership, the store, the addresses, and the core itself.
package events
