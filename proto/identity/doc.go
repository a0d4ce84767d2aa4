// Package identity holds the names by which nodes, roles and clusters know each other, and the self-signed certificates by which the
// holder of a pinned key proves it. Core, curator and command line share it, so that no two of them can spell a name differently. It owns no
// state and keeps no keys.
package identity
