// Package configuration is the curator role's configuration: a JSON object with the fields
//
//	listen     host:port on which the cluster API is served; default "127.0.0.1:0", a free port on loopback, which is that of ::1 where the machine has no 127.0.0.1
//	advertise  host:port that others are told to reach it at; default: what is listened on. Port 0 is the port that is listened on.
//	           Needed where listen names no address that others could use.
//
// It owns no state.
package configuration
