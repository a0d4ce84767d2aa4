module github.com/reeveproject/reeve/cli

go 1.26.0

replace github.com/reeveproject/reeve/proto => ../proto

require github.com/reeveproject/reeve/proto v0.0.0
