module penstock.invalid/queuefka

go 1.21
