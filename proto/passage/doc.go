// Package passage says through which directories only some users can pass: roles have user IDs of their own and must reach the node's directories. It owns no state.
package passage
